// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/model_facts.h"

#include <array>
#include <cstddef>

#include "schedules/base/json_reader.h"

namespace rehearse::exec {
namespace {

std::string yes(bool value) {
  return value ? "true" : "false";
}

// In the order of ActivationKind and of RotaryKind.
constexpr std::array kActivations{
    "gelu_pytorch_tanh", "gelu", "quick_gelu", "relu", "relu2", "silu", "tanh"};
constexpr std::array kRotaries{"default", "linear", "dynamic", "yarn", "longrope", "llama3"};

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + json_number(value);
  return '[' + text + ']';
}

std::string rotary_json(const RotaryConfig& rotary) {
  return "{\"rope_type\": " + json_quoted(kRotaries[static_cast<std::size_t>(rotary.kind)]) +
         ", \"interleaved\": " + yes(rotary.interleaved) +
         ", \"truncate\": " + yes(rotary.truncate) + ", \"numbers\": " +
         list({rotary.theta, rotary.share, rotary.factor,
               static_cast<double>(rotary.original_positions), rotary.low_frequency,
               rotary.high_frequency, rotary.attention_factor, rotary.beta_fast, rotary.beta_slow,
               rotary.magnitude, rotary.magnitude_all}) +
         ", \"short_factor\": " + list(rotary.short_factors) +
         ", \"long_factor\": " + list(rotary.long_factors) + '}';
}

// `of` of every layer.
template <class Of>
std::string by_layer(const Transformer& model, const Of& of) {
  std::vector<double> values;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    values.push_back(static_cast<double>(of(layer)));
  }
  return list(values);
}
std::string windows_json(const Transformer& model) {
  return by_layer(model, [&](std::int64_t layer) { return model.window(layer); });
}
std::string chunks_json(const Transformer& model) {
  return by_layer(model, [&](std::int64_t layer) { return model.chunk(layer); });
}
std::string rotating_json(const Transformer& model) {
  return by_layer(model, [&](std::int64_t layer) { return model.rotates(layer) ? 1 : 0; });
}

// Ranks and widths: what the sizes of tensors do not tell apart among them.
std::string latent_json(const LatentAttention& latent) {
  if (!latent.used()) return "null";
  return "{\"q_lora_rank\": " + std::to_string(latent.q_lora_rank) +
         ", \"kv_lora_rank\": " + std::to_string(latent.kv_lora_rank) +
         ", \"qk_rope_head_dim\": " + std::to_string(latent.qk_rope_head_dim) +
         ", \"v_head_dim\": " + std::to_string(latent.v_head_dim) + '}';
}

}  // namespace

std::vector<ModelFact> model_facts(const Transformer& model) {
  const bool learned = model.positions == PositionKind::Learned;
  const bool rotates = model.positions == PositionKind::Rope;
  const bool local = rotates && model.rotary_by_layer_kind;
  return {
      {"model_type", json_quoted(model.model_type)},
      {"num_hidden_layers", std::to_string(model.layers)},
      {"hidden_size", std::to_string(model.hidden)},
      {"num_attention_heads", std::to_string(model.heads)},
      {"num_key_value_heads", std::to_string(model.kv_heads)},
      {"head_dim", std::to_string(model.head_dim)},
      {"intermediate_size", std::to_string(model.ffn_hidden)},
      {"vocab_size", std::to_string(model.vocabulary)},
      {"max_position_embeddings", learned ? std::to_string(model.max_positions) : "null"},
      {"tie_word_embeddings", yes(model.tied_embedding)},
      {"gated_mlp", yes(model.mlp == MlpKind::Gated)},
      {"norm_epsilon", json_number(model.norm_epsilon)},
      {"rope_theta", json_number(model.rotary.theta)},
      {"hidden_act", json_quoted(kActivations[static_cast<std::size_t>(model.activation)]), true},
      {"rope_scaling", rotates ? rotary_json(model.rotary) : "null", true},
      {"rope_local", local ? rotary_json(model.windowed_rotary) : "null", true},
      {"sliding_window", windows_json(model), true},
      {"attention_scale", json_number(model.attention_scale), true},
      {"scale_attn_by_inverse_layer_idx", yes(model.attention_scale_by_layer), true},
      {"attn_logit_softcapping", json_number(model.attention_softcap), true},
      {"final_logit_softcapping", json_number(model.final_softcap), true},
      {"use_parallel_residual", yes(model.parallel_residual), true},
      {"apply_residual_connection_post_layernorm", yes(model.norm_is_residual), true},
      {"latent_attention", latent_json(model.latent), true},
      {"num_experts_per_tok", std::to_string(model.experts.per_token), true},
      {"norm_topk_prob", yes(model.experts.normalised), true},
      {"scoring_func", json_quoted(model.experts.sigmoid ? "sigmoid" : "softmax"), true},
      {"n_group", std::to_string(model.experts.groups), true},
      {"topk_group", std::to_string(model.experts.kept_groups), true},
      {"routed_scaling_factor", json_number(model.experts.weight_scale), true},
      {"swiglu_limit", json_number(model.experts.glu_limit), true},
      {"swiglu_alpha", json_number(model.experts.glu_alpha), true},
      {"use_qk_norm", yes(model.query_key_norm || model.query_key_unit_norm), true},
      {"no_rope_layers", rotates ? rotating_json(model) : "null", true},
      {"attention_chunk_size", chunks_json(model), true},
      {"attn_scale", json_number(model.temperature_scale), true},
      {"floor_scale", json_number(model.temperature_floor), true},
  };
}

}  // namespace rehearse::exec
