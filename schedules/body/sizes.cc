// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/sizes.h"

#include <algorithm>

namespace rehearse {
namespace {

using Role = ParameterRole;

// What a tensor is: a role that our executor knows, or a name alone.
struct Name {
  Name(std::string_view text) : name(text) {}
  Name(const char* text) : name(text) {}
  Name(ParameterRole of, std::string_view text, bool is_bias = false)
      : name(text), role(of), bias(is_bias) {}
  std::string_view name;
  ParameterRole role = ParameterRole::None;
  bool bias = false;
};

class Tensors {
 public:
  Tensors(bool partial_possible) : partial_possible_(partial_possible) {}
  void matrix(const Name& name, std::int64_t elements) { add(name, elements).matrix = true; }
  void column_bias(const Name& name, std::int64_t elements) {
    add(name, elements);
  }                                                           // split over tp
  void replicated(const Name& name, std::int64_t elements) {  // added to (local, hidden)
    replicated(name, elements, partial_possible_);
  }
  void replicated(const Name& name, std::int64_t elements, bool partial) {
    ParameterTensor& tensor = add(name, elements);
    tensor.partial = partial;
    tensor.replicated = true;
  }
  void replicated_matrix(const Name& name, std::int64_t elements) {
    replicated(name, elements);
    list_.back().matrix = true;
  }
  void table(const Name& name, std::int64_t elements) {
    ParameterTensor& tensor = add(name, elements);
    tensor.matrix = true;
    tensor.table = true;
  }
  // Adds a tensor of the routed experts; `slots` counts experts and matrices in the whole layer.
  ParameterTensor& of_experts(const Name& name, std::int64_t elements, std::int64_t slots) {
    ParameterTensor& tensor = add(name, elements);
    tensor.expert = true;
    tensor.norm_slots = static_cast<std::int32_t>(slots);
    return tensor;
  }
  void norm(const Transformer& model, const Name& weight, const Name& bias) {
    replicated(weight, model.hidden);
    if (model.norm == NormKind::LayerNorm && model.norm_bias) replicated(bias, model.hidden);
  }
  std::vector<ParameterTensor> take() { return std::move(list_); }

 private:
  ParameterTensor& add(const Name& name, std::int64_t elements) {
    return list_.emplace_back(ParameterTensor{
        .name = name.name, .role = name.role, .bias = name.bias, .elements = elements});
  }
  bool partial_possible_;
  std::vector<ParameterTensor> list_;
};

void attention_parameters(const Layout& layout, Tensors& out) {
  const auto& [model, plan, shape] = layout;
  const std::int64_t t = shape.tensor;
  const std::int64_t h = model.hidden;
  if (model.latent.kv_lora_rank > 0) {  // DeepSeek-V2, arXiv 2405.04434, section 2.1
    const LatentAttention& mla = model.latent;
    const std::int64_t query = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
    if (mla.q_lora_rank > 0) {
      out.replicated_matrix({Role::QueryDown, "q_a.weight"}, h * mla.q_lora_rank);
      if (model.qkv_bias) out.replicated({Role::QueryDown, "q_a.bias", true}, mla.q_lora_rank);
      out.replicated({Role::QueryDownNorm, "q_a_norm.weight"}, mla.q_lora_rank);
      out.matrix({Role::QueryUp, "q_b.weight"}, mla.q_lora_rank * model.heads * query / t);
    } else {
      out.matrix({Role::Query, "q.weight"}, h * model.heads * query / t);
    }
    const std::int64_t down = mla.kv_lora_rank + mla.qk_rope_head_dim;
    out.replicated_matrix({Role::KeyValueDown, "kv_a.weight"}, h * down);
    if (model.qkv_bias) out.replicated({Role::KeyValueDown, "kv_a.bias", true}, down);
    out.replicated({Role::KeyValueDownNorm, "kv_a_norm.weight"}, mla.kv_lora_rank);
    out.matrix({Role::KeyValueUp, "kv_b.weight"},
               mla.kv_lora_rank * model.heads * (mla.qk_nope_head_dim + mla.v_head_dim) / t);
    out.matrix({Role::Projection, "projection.weight"}, model.heads * mla.v_head_dim * h / t);
    if (model.projection_bias) out.replicated({Role::Projection, "projection.bias", true}, h);
    return;
  }
  out.matrix({Role::Qkv, "qkv.weight"}, h * shape.qkv);
  if (model.qkv_bias) out.column_bias({Role::Qkv, "qkv.bias", true}, shape.qkv);
  const Name query{Role::QueryNorm, "q_norm.weight"}, key{Role::KeyNorm, "k_norm.weight"};
  if (model.query_key_norm) {  // every rank sums over heads of its own
    out.replicated(query, model.head_dim, t > 1);
    out.replicated(key, model.head_dim, t > 1);
  }
  if (model.query_key_norm_whole) {
    out.column_bias(query, shape.heads * model.head_dim);
    // Ranks that share key heads have the weights of all, and each a part of their gradient.
    if (layout.key_value_replicas() > 1) {
      out.replicated(key, model.kv_heads * model.head_dim, true);
    } else {
      out.column_bias(key, shape.kv_heads * model.head_dim);
    }
  }
  if (model.attention_sinks) out.column_bias({Role::Sinks, "sinks"}, shape.heads);
  out.matrix({Role::Projection, "projection.weight"}, shape.heads * model.head_dim * h);
  if (model.projection_bias) out.replicated({Role::Projection, "projection.bias", true}, h);
}

// `apart`: our executor's products have a tensor each. Of a framework all matrices of a rank's
// experts are one, as its gradients become ready.
void moe_parameters(const Transformer& model, const RankShape& shape, bool apart, Tensors& out) {
  const Experts& experts = model.experts;
  const std::int64_t here = shape.experts.per_rank, width = shape.experts.width;
  const std::int64_t h = model.hidden, matrices = model.mlp == MlpKind::Gated ? 3 : 2;
  out.replicated_matrix({Role::Router, "router.weight"}, h * experts.count);
  if (experts.bias) out.replicated({Role::Router, "router.bias", true}, experts.count);
  if (apart) {
    out.of_experts({Role::ExpertUp, "experts.up.weight"}, here * (matrices - 1) * h * width,
                   experts.count * (matrices - 1))
        .matrix = true;
    out.of_experts({Role::ExpertDown, "experts.down.weight"}, here * h * width, experts.count)
        .matrix = true;
  } else {
    out.of_experts("experts.weight", here * matrices * h * width, experts.count * matrices).matrix =
        true;
  }
  if (experts.bias) {
    out.of_experts({Role::ExpertUp, "experts.up.bias", true}, here * (matrices - 1) * width,
                   experts.count * (matrices - 1));
    out.of_experts({Role::ExpertDown, "experts.down.bias", true}, here * h, experts.count);
  }
  if (experts.shared_ffn_hidden > 0) {
    if (apart) {
      out.matrix({Role::SharedUp, "shared_experts.up.weight"},
                 (matrices - 1) * h * shape.experts.shared);
      out.matrix({Role::SharedDown, "shared_experts.down.weight"}, h * shape.experts.shared);
    } else {
      out.matrix("shared_experts.weight", matrices * h * shape.experts.shared);
    }
    if (experts.shared_gate) out.replicated_matrix({Role::SharedGate, "shared_gate.weight"}, h);
  }
}

void mlp_parameters(const Transformer& model, const RankShape& shape, Tensors& out) {
  const std::int64_t h = model.hidden;
  out.matrix({Role::Up, "up.weight"}, h * shape.up);
  if (model.mlp_bias) out.column_bias({Role::Up, "up.bias", true}, shape.up);
  out.matrix({Role::Down, "down.weight"}, shape.ffn * h);
  if (model.mlp_bias) out.replicated({Role::Down, "down.bias", true}, h);
}

void layer_parameters(const Layout& layout, std::int64_t layer, Tensors& out) {
  const Transformer& model = layout.model;
  const RankShape& shape = layout.shape;
  const bool before = model.norm_placement != NormPlacement::After;
  const bool after = model.norm_placement != NormPlacement::Before;
  const auto norm = [&](bool there, Role role, std::string_view weight, std::string_view bias) {
    if (there) out.norm(model, {role, weight}, {role, bias, true});
  };
  norm(before, Role::Norm1, "norm1.weight", "norm1.bias");
  attention_parameters(layout, out);
  norm(after, Role::OutNorm1, "out_norm1.weight", "out_norm1.bias");
  norm(before, Role::Norm2, "norm2.weight", "norm2.bias");
  if (model.has_experts(layer)) {
    moe_parameters(model, shape, layout.plan.runtime.own_executor, out);
  } else {
    mlp_parameters(model, shape, out);
  }
  norm(after, Role::OutNorm2, "out_norm2.weight", "out_norm2.bias");
}

// A layer like the last one, of the hidden state and the next token's embedding. The first has a
// table of its own for that unless one position holds all. Head and loss are the model's.
void prediction_parameters(const Layout& layout, std::int64_t layer, Tensors& out) {
  const auto& [model, plan, shape] = layout;
  out.norm(model, "prediction.embedding_norm.weight", "prediction.embedding_norm.bias");
  out.norm(model, "prediction.hidden_norm.weight", "prediction.hidden_norm.bias");
  out.matrix("prediction.projection.weight", 2 * model.hidden * model.hidden / shape.tensor);
  layer_parameters(layout, model.layers - 1, out);
  out.norm(model, "prediction.final_norm.weight", "prediction.final_norm.bias");
  if (layer == model.layers && plan.pipeline_parallel > 1) {
    out.matrix("prediction.table.weight", shape.vocabulary * model.hidden);
  }
}

}  // namespace

std::vector<ParameterTensor> segment_parameters(const Layout& layout, SegmentKind kind,
                                                std::int64_t layer) {
  const Transformer& model = layout.model;
  const RankShape& shape = layout.shape;
  const std::int64_t h = model.hidden;
  Tensors out(shape.gather);
  switch (kind) {
    case SegmentKind::Embedding:
      out.table({Role::Table, "table.weight"}, shape.vocabulary * h);
      if (model.positions == PositionKind::Learned) {
        out.replicated_matrix({Role::Positions, "positions.weight"}, model.max_positions * h);
      }
      if (model.embedding_norm) {
        out.norm(model, {Role::EmbeddingNorm, "embedding_norm.weight"},
                 {Role::EmbeddingNorm, "embedding_norm.bias", true});
      }
      break;
    case SegmentKind::Layer:
      if (layer >= model.layers) {
        prediction_parameters(layout, layer, out);
      } else {
        layer_parameters(layout, layer, out);
      }
      break;
    case SegmentKind::Head:
      out.norm(model, {Role::FinalNorm, "final_norm.weight"},
               {Role::FinalNorm, "final_norm.bias", true});
      if (!model.tied_embedding) out.table({Role::Head, "head.weight"}, shape.vocabulary * h);
      break;
  }
  return out.take();
}

std::vector<std::vector<SegmentInfo>> stage_segments(const Layout& layout, std::int32_t stages) {
  const Plan& plan = layout.plan;
  const std::int32_t predicts = plan.prediction_stage < 0 ? stages - 1 : plan.prediction_stage;
  std::vector<std::vector<SegmentInfo>> segments(static_cast<std::size_t>(stages));
  std::int32_t layer = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (s == 0) segments[s].push_back({SegmentKind::Embedding, -1});
    for (std::int32_t i = 0; i < plan.stage_layers[s]; ++i) {
      segments[s].push_back({SegmentKind::Layer, layer++});
    }
    if (static_cast<std::int32_t>(s) == predicts) {
      for (std::int64_t i = 0; i < layout.prediction_layers(); ++i) {
        segments[s].push_back({SegmentKind::Layer, layer++});
      }
    }
    if (s + 1 == segments.size()) segments[s].push_back({SegmentKind::Head, -1});
  }
  return segments;
}

}  // namespace rehearse
