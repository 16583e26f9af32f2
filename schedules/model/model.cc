// SPDX-License-Identifier: Apache-2.0
// Exact parameter counts and FLOPs of a transformer, tensor by tensor. In the formulas: h hidden,
// a heads, k key/value heads, d head size, f MLP width, V vocabulary, L layers, s sequence, T
// tokens.
#include "schedules/model/model.h"

#include <algorithm>
#include <cmath>

#include "schedules/model/attention_keys.h"

namespace rehearse {
namespace {

std::int64_t norm_parameters(const Transformer& model, std::int64_t width) {
  const bool bias = model.norm == NormKind::LayerNorm && model.norm_bias;
  return bias ? 2 * width : width;
}

// Queries, keys and values compressed to a rank each (DeepSeek-V2, arXiv 2405.04434, section 2.1).
// The weights of the matrices alone; norms and biases are counted apart.
std::int64_t latent_matrices(const Transformer& model) {
  const LatentAttention& m = model.latent;
  const std::int64_t query_width = model.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim);
  const std::int64_t queries = m.q_lora_rank > 0
                                   ? model.hidden * m.q_lora_rank + m.q_lora_rank * query_width
                                   : model.hidden * query_width;
  return queries + model.hidden * (m.kv_lora_rank + m.qk_rope_head_dim) +
         m.kv_lora_rank * model.heads * (m.qk_nope_head_dim + m.v_head_dim) +
         model.heads * m.v_head_dim * model.hidden;
}

// Weights of the attention's matrix products: h (a + 2k) d + a d h.
std::int64_t attention_matrices(const Transformer& model) {
  if (model.latent.kv_lora_rank > 0) return latent_matrices(model);
  return model.hidden * (2 * model.heads + 2 * model.kv_heads) * model.head_dim;
}

std::int64_t attention_vectors(const Transformer& model) {
  std::int64_t count = 0;
  if (model.latent.kv_lora_rank > 0) {
    const LatentAttention& m = model.latent;
    count += m.q_lora_rank + m.kv_lora_rank;  // RMS norms of the compressed queries and keys
    if (model.qkv_bias) count += m.q_lora_rank + m.kv_lora_rank + m.qk_rope_head_dim;
  } else if (model.qkv_bias) {
    count += (model.heads + 2 * model.kv_heads) * model.head_dim;
  }
  if (model.projection_bias) count += model.hidden;
  if (model.query_key_norm) count += 2 * model.head_dim;
  if (model.query_key_norm_whole) count += (model.heads + model.kv_heads) * model.head_dim;
  if (model.attention_sinks) count += model.heads;
  return count;
}

std::int64_t matrices_of_mlp(const Transformer& model) {
  return model.mlp == MlpKind::Gated ? 3 : 2;
}

std::int64_t mlp_biases(const Transformer& model, std::int64_t width) {
  return (matrices_of_mlp(model) - 1) * width + model.hidden;
}

std::int64_t dense_mlp(const Transformer& model) {
  return matrices_of_mlp(model) * model.hidden * model.ffn_hidden +
         (model.mlp_bias ? mlp_biases(model, model.ffn_hidden) : 0);
}

// Router, `experts` routed experts and the shared one.
std::int64_t expert_mlp(const Transformer& model, std::int64_t experts) {
  return router_parameters(model) + experts * expert_parameters(model) +
         shared_expert_parameters(model);
}

// Before or behind each of the two blocks, or both.
std::int64_t norms_of_layer(const Transformer& model) {
  return model.norm_placement == NormPlacement::Around ? 4 : 2;
}

std::int64_t layer_count(const Transformer& model, std::int64_t layer, std::int64_t experts) {
  return attention_matrices(model) + attention_vectors(model) +
         norms_of_layer(model) * norm_parameters(model, model.hidden) +
         (model.has_experts(layer) ? expert_mlp(model, experts) : dense_mlp(model));
}

std::int64_t total_count(const Transformer& model, std::int64_t experts) {
  std::int64_t total = embedding_parameters(model) + head_parameters(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    total += layer_count(model, layer, experts);
  }
  return total;
}

// Weights that a token is multiplied with in one layer.
std::int64_t multiplied(const Transformer& model, std::int64_t layer) {
  const std::int64_t matrices = matrices_of_mlp(model);
  if (!model.has_experts(layer)) {
    return attention_matrices(model) + matrices * model.hidden * model.ffn_hidden;
  }
  const Experts& e = model.experts;
  return attention_matrices(model) + model.hidden * e.count + (e.shared_gate ? model.hidden : 0) +
         matrices * model.hidden * (e.per_token * e.ffn_hidden + e.shared_ffn_hidden);
}

// Widths of the two attention products together: scores over q.k, and probabilities times v.
double attention_width(const Transformer& model) {
  const LatentAttention& m = model.latent;
  const std::int64_t per_head = m.kv_lora_rank > 0
                                    ? m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim
                                    : 2 * model.head_dim;
  return static_cast<double>(model.heads * per_head);
}

double squared_pairs(Reach reach, double s) {
  if (reach.window > 0) return s * std::min(static_cast<double>(reach.window), s);
  if (reach.chunk == 0) return s * s;
  const double chunk = std::min(static_cast<double>(reach.chunk), s);
  const double whole = std::floor(s / chunk) * chunk, rest = s - whole;
  return whole * chunk + rest * rest;
}

// Keys per query of that many layers together; beyond the last one prediction layers are like it.
double keys_of_layers(const Transformer& model, std::int64_t layers, std::int64_t sequence_length,
                      bool causal) {
  const auto s = static_cast<double>(sequence_length);
  double keys = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Reach reach = model.reach(std::min(layer, model.layers - 1));
    keys += (causal ? attention_pairs(reach, sequence_length) : squared_pairs(reach, s)) / s;
  }
  return keys;
}

// N of the short conventions: parameters that a token is multiplied with. Tables that are only
// looked up are left out; a tied table is also the head's matrix, so it stays.
double multiplied_parameters(const Transformer& model) {
  std::int64_t lookups = embedding_parameters(model);
  if (model.tied_embedding) lookups -= model.vocabulary * model.hidden;
  return static_cast<double>(active_parameters(model) - lookups);
}

}  // namespace

bool Transformer::has_dense_layers() const {
  return experts.count == 0 || std::ranges::find(experts.layers, false) != experts.layers.end();
}

std::int64_t first_layer(const Transformer& model, bool experts) {
  std::int64_t layer = 0;
  while (layer + 1 < model.layers && model.has_experts(layer) != experts) ++layer;
  return layer;
}

double attention_scale(const Transformer& model, std::int64_t layer) {
  const double scale = model.attention_scale > 0
                           ? model.attention_scale
                           : 1 / std::sqrt(static_cast<double>(model.head_dim));
  return model.attention_scale_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

double attention_pairs(Reach reach, std::int64_t sequence_length) {
  const auto s = static_cast<double>(sequence_length);
  if (reach.window > 0) {
    const double window = std::min(static_cast<double>(reach.window), s);
    return window * s - window * window / 2;
  }
  if (reach.chunk == 0) return s * s / 2;
  const double chunk = std::min(static_cast<double>(reach.chunk), s);
  const double whole = std::floor(s / chunk) * chunk, rest = s - whole;
  return (whole * chunk + rest * rest) / 2;
}

double attention_pairs(const Transformer& model, std::int64_t sequence_length) {
  double pairs = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    pairs += attention_pairs(model.reach(layer), sequence_length);
  }
  return pairs / static_cast<double>(model.layers);
}

double squared_pairs(const Transformer& model, std::int64_t sequence_length) {
  return keys_of_layers(model, model.layers, sequence_length, false) *
         static_cast<double>(sequence_length) / static_cast<double>(model.layers);
}

std::int64_t embedding_parameters(const Transformer& model) {
  std::int64_t count = model.vocabulary * model.hidden;
  if (model.positions == PositionKind::Learned) count += model.max_positions * model.hidden;
  if (model.embedding_norm) count += norm_parameters(model, model.hidden);
  return count;
}

std::int64_t layer_parameters(const Transformer& model, std::int64_t layer) {
  return layer_count(model, layer, model.experts.count);
}

std::int64_t head_parameters(const Transformer& model) {
  return norm_parameters(model, model.hidden) +
         (model.tied_embedding ? 0 : model.vocabulary * model.hidden);
}

std::int64_t expert_parameters(const Transformer& model) {
  const Experts& e = model.experts;
  return matrices_of_mlp(model) * model.hidden * e.ffn_hidden +
         (e.bias ? mlp_biases(model, e.ffn_hidden) : 0);
}

std::int64_t router_parameters(const Transformer& model) {
  const Experts& e = model.experts;
  return model.hidden * e.count + (e.bias ? e.count : 0);
}

std::int64_t shared_expert_parameters(const Transformer& model) {
  const Experts& e = model.experts;
  return matrices_of_mlp(model) * model.hidden * e.shared_ffn_hidden +
         (e.shared_gate ? model.hidden : 0);
}

std::int64_t prediction_parameters(const Transformer& model) {
  return model.prediction_layers *
         (layer_parameters(model, model.layers - 1) + 2 * model.hidden * model.hidden +
          3 * norm_parameters(model, model.hidden));
}

std::int64_t total_parameters(const Transformer& model) {
  return total_count(model, model.experts.count);
}

std::int64_t active_parameters(const Transformer& model) {
  return total_count(model, model.experts.per_token);
}

double model_flops(const Transformer& model, std::int64_t samples, std::int64_t sequence_length,
                   FlopsConvention convention) {
  const double s = static_cast<double>(sequence_length);
  const double tokens = static_cast<double>(samples) * s;
  switch (convention) {
    case FlopsConvention::SixN:
      return 6.0 * multiplied_parameters(model) * tokens;
    case FlopsConvention::Palm:  // 12 L a d s per token: 2 FLOPs, 2 products, 3 passes
      return 6.0 * tokens *
             (multiplied_parameters(model) +
              attention_width(model) * keys_of_layers(model, model.layers, sequence_length, false));
    case FlopsConvention::Megatron:
    case FlopsConvention::MegatronCausal:
      break;
  }
  const bool causal = convention == FlopsConvention::MegatronCausal;
  double weights = static_cast<double>(model.vocabulary * model.hidden);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    weights += static_cast<double>(multiplied(model, layer));
  }
  // A prediction layer is a layer, its projection and one more head.
  const double more = static_cast<double>(model.prediction_layers);
  weights += more * static_cast<double>(multiplied(model, model.layers - 1) +
                                        (2 * model.hidden + model.vocabulary) * model.hidden);
  // Forward once, backward twice; 2 FLOPs per multiply-add.
  const std::int64_t layers = model.layers + model.prediction_layers;
  return 3.0 * 2.0 * tokens *
         (weights +
          attention_width(model) * keys_of_layers(model, layers, sequence_length, causal));
}

}  // namespace rehearse
