// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/parts.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"

namespace rehearse {
namespace {

using Role = ParameterRole;

ModelPart matrix(Role role, std::string_view name, std::int64_t out, std::int64_t in, Cut cut) {
  return {.name = name, .role = role, .cut = cut, .out = out, .in = in, .blocks = {out}};
}

ModelPart vector(Role role, std::string_view name, std::int64_t out, PartUse use,
                 Cut cut = Cut::None) {
  return {.name = name, .role = role, .use = use, .cut = cut, .out = out, .blocks = {out}};
}

ModelPart bias_of(Role role, std::string_view name, std::int64_t out, Cut cut = Cut::None) {
  ModelPart part = vector(role, name, out, PartUse::Vector, cut);
  part.bias = true;
  return part;
}

void add_norm(const Transformer& model, Role role, std::string_view weight, std::string_view bias,
              std::vector<ModelPart>& parts) {
  parts.push_back(vector(role, weight, model.hidden, PartUse::Norm));
  if (model.norm != NormKind::LayerNorm || !model.norm_bias) return;
  parts.push_back(vector(role, bias, model.hidden, PartUse::Norm));
  parts.back().bias = true;
}

// Queries, keys and values compressed to a rank each (DeepSeek-V2, arXiv 2405.04434, section 2.1).
void add_latent(const Transformer& model, std::vector<ModelPart>& parts) {
  const LatentAttention& mla = model.latent;
  const std::int64_t h = model.hidden, query = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  if (mla.q_lora_rank > 0) {
    parts.push_back(matrix(Role::QueryDown, "q_a.weight", mla.q_lora_rank, h, Cut::None));
    if (model.qkv_bias) parts.push_back(bias_of(Role::QueryDown, "q_a.bias", mla.q_lora_rank));
    parts.push_back(vector(Role::QueryDownNorm, "q_a_norm.weight", mla.q_lora_rank, PartUse::Norm));
    parts.push_back(
        matrix(Role::QueryUp, "q_b.weight", model.heads * query, mla.q_lora_rank, Cut::Rows));
  } else {
    parts.push_back(matrix(Role::Query, "q.weight", model.heads * query, h, Cut::Rows));
  }
  const std::int64_t down = mla.kv_lora_rank + mla.qk_rope_head_dim;
  parts.push_back(matrix(Role::KeyValueDown, "kv_a.weight", down, h, Cut::None));
  if (model.qkv_bias) parts.push_back(bias_of(Role::KeyValueDown, "kv_a.bias", down));
  parts.push_back(
      vector(Role::KeyValueDownNorm, "kv_a_norm.weight", mla.kv_lora_rank, PartUse::Norm));
  parts.push_back(matrix(Role::KeyValueUp, "kv_b.weight",
                         model.heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank,
                         Cut::Rows));
}

void add_heads(const Transformer& model, std::vector<ModelPart>& parts) {
  const std::int64_t d = model.head_dim, query = model.heads * d, key = model.kv_heads * d;
  const std::int64_t v = model.value_dim(), value = model.keys_are_values ? 0 : model.kv_heads * v;
  // A gate's rows stand with the queries'.
  const std::int64_t first = query + (model.attention_gate ? model.heads * v : 0);
  const auto of_heads = [&](ModelPart part) {
    part.blocks = {first, key, value};
    part.head_rows = d;
    if (v != d) part.value_rows = v;
    return part;
  };
  const std::int64_t rows = first + key + value;
  parts.push_back(of_heads(matrix(Role::Qkv, "qkv.weight", rows, model.hidden, Cut::Rows)));
  if (model.qkv_bias) {
    parts.push_back(of_heads(bias_of(Role::Qkv, "qkv.bias", rows, Cut::Rows)));
  }
  if (model.query_key_norm) {
    for (const auto& [role, name] :
         {std::pair{Role::QueryNorm, "q_norm.weight"}, std::pair{Role::KeyNorm, "k_norm.weight"}}) {
      parts.push_back(vector(role, name, d, PartUse::Norm));
      parts.back().of_own_heads = true;
    }
  }
  if (model.query_key_norm_whole) {
    parts.push_back(vector(Role::QueryNorm, "q_norm.weight", query, PartUse::Norm, Cut::Rows));
    parts.push_back(vector(Role::KeyNorm, "k_norm.weight", key, PartUse::Norm, Cut::Rows));
    parts.back().of_own_heads = true;  // where ranks share key heads, and have the weights of all
  }
  if (model.attention_sinks) {
    parts.push_back(vector(Role::Sinks, "sinks", model.heads, PartUse::Vector, Cut::Rows));
  }
}

void add_attention(const Transformer& model, std::vector<ModelPart>& parts) {
  const std::int64_t h = model.hidden;
  if (model.latent.used()) {
    add_latent(model, parts);
  } else {
    add_heads(model, parts);
  }
  parts.push_back(matrix(Role::Projection, "projection.weight", h, model.heads * model.value_dim(),
                         Cut::Columns));
  if (model.projection_bias) parts.push_back(bias_of(Role::Projection, "projection.bias", h));
}

// Gate and up as one matrix of `width` rows each. `together`: their rows take turns.
ModelPart up_of(const Transformer& model, ModelPart part, std::int64_t width,
                bool together = false) {
  part.matrices = matrices_up(model);
  part.out = part.matrices * width;
  part.blocks = {part.out};
  if (part.matrices == 2 && !together) part.blocks = {width, width};
  return part;
}

void add_mlp(const Transformer& model, std::vector<ModelPart>& parts) {
  const std::int64_t h = model.hidden, f = model.ffn_hidden;
  parts.push_back(up_of(model, matrix(Role::Up, "up.weight", 0, h, Cut::Rows), f));
  if (model.mlp_bias) parts.push_back(up_of(model, bias_of(Role::Up, "up.bias", 0, Cut::Rows), f));
  parts.push_back(matrix(Role::Down, "down.weight", h, f, Cut::Columns));
  if (model.mlp_bias) parts.push_back(bias_of(Role::Down, "down.bias", h));
}

void add_experts(const Transformer& model, std::vector<ModelPart>& parts) {
  const Experts& experts = model.experts;
  const std::int64_t h = model.hidden, f = experts.ffn_hidden, shared = experts.shared_ffn_hidden;
  const std::int64_t row = experts.latent > 0 ? experts.latent : h;
  const bool together = experts.glu_limit > 0;
  const auto routed = [&](ModelPart part) {
    part.expert = true;
    part.copies = experts.count;
    return part;
  };
  parts.push_back(matrix(Role::Router, "router.weight", experts.count, h, Cut::None));
  if (experts.bias) parts.push_back(bias_of(Role::Router, "router.bias", experts.count));
  if (experts.latent > 0) {
    parts.push_back(matrix(Role::None, "latent.down.weight", row, h, Cut::None));
    parts.push_back(matrix(Role::None, "latent.up.weight", h, row, Cut::None));
  }
  parts.push_back(routed(
      up_of(model, matrix(Role::ExpertUp, "experts.up.weight", 0, row, Cut::Rows), f, together)));
  parts.push_back(routed(matrix(Role::ExpertDown, "experts.down.weight", row, f, Cut::Columns)));
  if (experts.bias) {
    parts.push_back(routed(
        up_of(model, bias_of(Role::ExpertUp, "experts.up.bias", 0, Cut::Rows), f, together)));
    parts.push_back(routed(bias_of(Role::ExpertDown, "experts.down.bias", row)));
  }
  if (shared == 0) return;
  parts.push_back(
      up_of(model, matrix(Role::SharedUp, "shared_experts.up.weight", 0, h, Cut::Rows), shared));
  parts.push_back(matrix(Role::SharedDown, "shared_experts.down.weight", h, shared, Cut::Columns));
  if (experts.shared_gate) {
    parts.push_back(matrix(Role::SharedGate, "shared_gate.weight", 1, h, Cut::None));
  }
}

void add_kinds(const std::vector<BoundKind>& kinds, std::vector<ModelPart>& parts) {
  std::uint8_t block = kFirstKind;
  for (const BoundKind& kind : kinds) {
    const std::size_t before = parts.size();
    std::ranges::move(parts_of(kind), std::back_inserter(parts));
    for (std::size_t i = before; i < parts.size(); ++i) parts[i].block = block;
    ++block;
  }
}

void add_mixer(const Transformer& model, std::vector<ModelPart>& parts) {
  const bool before = model.norm_placement != NormPlacement::After;
  const bool after = model.norm_placement != NormPlacement::Before;
  if (before) add_norm(model, Role::Norm1, "norm1.weight", "norm1.bias", parts);
  if (model.has_attention) add_attention(model, parts);
  add_kinds(mixers_of(model), parts);
  if (after) add_norm(model, Role::OutNorm1, "out_norm1.weight", "out_norm1.bias", parts);
}

void add_feed_forward(const Transformer& model, std::int64_t layer, std::vector<ModelPart>& parts) {
  const bool before = model.norm_placement != NormPlacement::After && !model.one_norm;
  const bool after = model.norm_placement != NormPlacement::Before;
  if (before) add_norm(model, Role::Norm2, "norm2.weight", "norm2.bias", parts);
  const bool experts = model.has_experts(layer), mlp = !experts || model.experts.beside_mlp;
  if (experts) add_experts(model, parts);
  if (mlp) add_mlp(model, parts);
  for (const ExtraVector& extra : extra_of(model)) {
    if (extra.of_experts ? !experts : !mlp) continue;
    parts.push_back(vector(Role::None, extra.name, extra.elements, PartUse::Vector));
  }
  if (after) add_norm(model, Role::OutNorm2, "out_norm2.weight", "out_norm2.bias", parts);
}

void add_layer(const Transformer& model, std::int64_t layer, std::vector<ModelPart>& parts) {
  if (has_mixer(model)) add_mixer(model, parts);
  if (!model.has_mlp) return;
  const std::size_t before = parts.size();
  add_feed_forward(model, layer, parts);
  for (std::size_t i = before; i < parts.size(); ++i) parts[i].block = kSecondBlock;
}

}  // namespace

std::vector<ModelPart> embedding_parts(const Transformer& model) {
  std::vector<ModelPart> parts{
      matrix(Role::Table, "table.weight", model.vocabulary, model.hidden, Cut::Vocabulary)};
  parts.back().use = PartUse::Lookup;
  if (model.positions == PositionKind::Learned) {
    parts.push_back(
        matrix(Role::Positions, "positions.weight", model.max_positions, model.hidden, Cut::None));
    parts.back().use = PartUse::Lookup;
  }
  if (model.embedding_norm) {
    add_norm(model, Role::EmbeddingNorm, "embedding_norm.weight", "embedding_norm.bias", parts);
  }
  add_kinds(kinds_at_embedding(model), parts);
  return parts;
}

std::vector<ModelPart> layer_parts(const Transformer& model, std::int64_t layer) {
  std::vector<ModelPart> parts;
  const std::int32_t of = variant_of(model, layer);
  if (layer < model.layers) {
    if (of >= 0) return layer_parts(variant(model, of), 0);
    add_layer(model, layer, parts);
    return parts;
  }
  const std::int64_t h = model.hidden;
  add_norm(model, Role::None, "prediction.embedding_norm.weight", "prediction.embedding_norm.bias",
           parts);
  add_norm(model, Role::None, "prediction.hidden_norm.weight", "prediction.hidden_norm.bias",
           parts);
  parts.push_back(matrix(Role::None, "prediction.projection.weight", h, 2 * h, Cut::Rows));
  const Transformer& like = variant(model, of);
  add_layer(like, like.layers - 1, parts);
  add_norm(model, Role::None, "prediction.final_norm.weight", "prediction.final_norm.bias", parts);
  return parts;
}

std::vector<ModelPart> head_parts(const Transformer& model) {
  std::vector<ModelPart> parts;
  add_kinds(kinds_at_head(model), parts);
  add_norm(model, Role::FinalNorm, "final_norm.weight", "final_norm.bias", parts);
  if (!model.tied_embedding) {
    parts.push_back(
        matrix(Role::Head, "head.weight", model.vocabulary, model.hidden, Cut::Vocabulary));
  }
  return parts;
}

const ModelPart* find_part(const std::vector<ModelPart>& parts, ParameterRole role) {
  const auto found = std::ranges::find_if(
      parts, [&](const ModelPart& part) { return part.role == role && !part.bias; });
  return found == parts.end() ? nullptr : &*found;
}

std::int64_t compressed_columns(const Transformer& model) {
  return model.latent.q_lora_rank + model.latent.kv_lora_rank;
}

std::int64_t compressed_key_value_columns(const Transformer& model) {
  return model.latent.kv_lora_rank;
}

std::int64_t elements_of(const std::vector<ModelPart>& parts) {
  return std::accumulate(
      parts.begin(), parts.end(), std::int64_t{0},
      [](std::int64_t sum, const ModelPart& part) { return sum + part.elements(); });
}

}  // namespace rehearse
