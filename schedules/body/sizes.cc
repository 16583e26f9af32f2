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
    ParameterTensor& tensor = add(name, elements);
    tensor.partial = partial_possible_;
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

void attention_parameters(const Transformer& model, const RankShape& shape, std::int64_t t,
                          Tensors& out) {
  const std::int64_t h = model.hidden;
  if (model.latent.kv_lora_rank > 0) {  // DeepSeek-V2, arXiv 2405.04434, section 2.1
    const LatentAttention& mla = model.latent;
    const std::int64_t query = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
    if (mla.q_lora_rank > 0) {
      out.replicated_matrix("q_a.weight", h * mla.q_lora_rank);
      out.replicated("q_a_norm.weight", mla.q_lora_rank);
      out.matrix("q_b.weight", mla.q_lora_rank * model.heads * query / t);
    } else {
      out.matrix("q.weight", h * model.heads * query / t);
    }
    out.replicated_matrix("kv_a.weight", h * (mla.kv_lora_rank + mla.qk_rope_head_dim));
    out.replicated("kv_a_norm.weight", mla.kv_lora_rank);
    out.matrix("kv_b.weight",
               mla.kv_lora_rank * model.heads * (mla.qk_nope_head_dim + mla.v_head_dim) / t);
    out.matrix({Role::Projection, "projection.weight"}, model.heads * mla.v_head_dim * h / t);
    return;
  }
  out.matrix({Role::Qkv, "qkv.weight"}, h * shape.qkv);
  if (model.qkv_bias) out.column_bias({Role::Qkv, "qkv.bias", true}, shape.qkv);
  if (model.query_key_norm) {
    out.replicated("q_norm.weight", model.head_dim);
    out.replicated("k_norm.weight", model.head_dim);
  }
  if (model.attention_sinks) out.column_bias("sinks", shape.heads);
  out.matrix({Role::Projection, "projection.weight"}, shape.heads * model.head_dim * h);
  if (model.projection_bias) out.replicated({Role::Projection, "projection.bias", true}, h);
}

void expert_parameters(const Transformer& model, std::int64_t t, Tensors& out) {
  const Experts& experts = model.experts;
  const std::int64_t h = model.hidden, matrices = model.mlp == MlpKind::Gated ? 3 : 2;
  out.replicated_matrix("router.weight", h * experts.count);
  if (experts.bias) out.replicated("router.bias", experts.count);
  out.matrix("experts.weight", experts.count * matrices * h * experts.ffn_hidden / t);
  if (experts.bias) {
    out.column_bias("experts.up_bias", experts.count * (matrices - 1) * experts.ffn_hidden / t);
    out.replicated("experts.down_bias", experts.count * h);
  }
  if (experts.shared_ffn_hidden > 0) {
    out.matrix("shared_experts.weight", matrices * h * experts.shared_ffn_hidden / t);
    if (experts.shared_gate) out.replicated_matrix("shared_gate.weight", h);
  }
}

}  // namespace

std::vector<ParameterTensor> segment_parameters(const Layout& layout, SegmentKind kind,
                                                std::int64_t layer) {
  const auto& [model, plan, shape] = layout;
  const std::int64_t h = model.hidden;
  Tensors out(shape.gather);
  switch (kind) {
    case SegmentKind::Embedding:
      out.table({Role::Table, "table.weight"}, shape.vocabulary * h);
      if (model.positions == PositionKind::Learned) {
        out.replicated_matrix({Role::Positions, "positions.weight"}, model.max_positions * h);
      }
      if (model.embedding_norm) out.norm(model, "embedding_norm.weight", "embedding_norm.bias");
      break;
    case SegmentKind::Layer:
      out.norm(model, {Role::Norm1, "norm1.weight"}, {Role::Norm1, "norm1.bias", true});
      attention_parameters(model, shape, shape.tensor, out);
      out.norm(model, {Role::Norm2, "norm2.weight"}, {Role::Norm2, "norm2.bias", true});
      if (model.has_experts(layer)) {
        expert_parameters(model, plan.expert_tensor_parallel, out);
      } else {
        out.matrix({Role::Up, "up.weight"}, h * shape.up);
        if (model.mlp_bias) out.column_bias({Role::Up, "up.bias", true}, shape.up);
        out.matrix({Role::Down, "down.weight"}, shape.ffn * h);
        if (model.mlp_bias) out.replicated({Role::Down, "down.bias", true}, h);
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

std::vector<std::vector<SegmentInfo>> stage_segments(const Plan& plan, std::int32_t stages) {
  std::vector<std::vector<SegmentInfo>> segments(static_cast<std::size_t>(stages));
  std::int32_t layer = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (s == 0) segments[s].push_back({SegmentKind::Embedding, -1});
    for (std::int32_t i = 0; i < plan.stage_layers[s]; ++i) {
      segments[s].push_back({SegmentKind::Layer, layer++});
    }
    if (s + 1 == segments.size()) segments[s].push_back({SegmentKind::Head, -1});
  }
  return segments;
}

}  // namespace rehearse
