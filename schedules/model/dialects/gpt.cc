// SPDX-License-Identifier: Apache-2.0
// Dialects of models with layer norms and two matrices per MLP.
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {

Transformer gpt2() {
  return {.layers = 12, .hidden = 768, .heads = 12, .vocabulary = 50257, .max_positions = 1024};
}

// Not Hugging Face's keys: a GPT with experts, as Megatron-LM trains it. Every layer has them, and
// they have no biases.
void finish_gpt2(const ConfigReader& config, Transformer& model) {
  bool scaled = true;
  config.read("scale_attn_weights", scaled);
  if (!scaled) model.attention_scale = 1;
  config.read("scale_attn_by_inverse_layer_idx", model.attention_scale_by_layer);
  Experts& experts = model.experts;
  config.read("num_experts", experts.count);
  if (experts.count == 0) return;
  experts.per_token = 2;
  experts.ffn_hidden = model.ffn_hidden > 0 ? model.ffn_hidden : 4 * model.hidden;
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("shared_expert_intermediate_size", experts.shared_ffn_hidden);
}

Transformer gpt_neox() {
  return {.layers = 44,
          .hidden = 6144,
          .heads = 64,
          .ffn_hidden = 24576,
          .vocabulary = 50432,
          .max_positions = 2048,
          .activation = ActivationKind::GeluExact,
          .positions = PositionKind::Rope,
          .parallel_residual = true,
          .tied_embedding = false,
          .rotary = {.share = 0.25}};
}

// Only queries, keys, values and the projection may lack biases (attention_bias).
void finish_gpt_neox(const ConfigReader& config, Transformer& model) {
  config.read("use_parallel_residual", model.parallel_residual);
  config.read("rotary_pct", model.rotary.share);
  model.rotary.theta = 10000;  // rope_theta has no meaning to the class
  config.read("rotary_emb_base", model.rotary.theta);
  model.dropouts.embedding = model.dropouts.residual;
}

Transformer bloom() {
  return {.layers = 2,
          .hidden = 64,
          .heads = 8,
          .vocabulary = 250880,
          .max_positions = 2048,
          .positions = PositionKind::Alibi,
          .embedding_norm = true};
}

void finish_bloom(const ConfigReader& config, Transformer& model) {
  config.read("apply_residual_connection_post_layernorm", model.norm_is_residual);
}

Transformer mpt() {
  return {.layers = 24,
          .hidden = 2048,
          .heads = 16,
          .vocabulary = 50368,
          .max_positions = 2048,
          .norm_bias = false,
          .activation = ActivationKind::GeluExact,
          .positions = PositionKind::Alibi,
          .qkv_bias = false,
          .projection_bias = false,
          .mlp_bias = false};
}

// llm-foundry has learned positions where attn_config.alibi is false; Hugging Face knows ALiBi
// only.
void finish_mpt(const ConfigReader& config, Transformer& model) {
  std::int64_t ratio = 4;
  bool no_bias = true, learned = true;
  config.read("expansion_ratio", ratio);
  config.read("no_bias", no_bias);
  config.read("learned_pos_emb", learned);
  if (model.ffn_hidden == 0) model.ffn_hidden = ratio * model.hidden;
  model.qkv_bias = model.projection_bias = model.mlp_bias = model.norm_bias = !no_bias;
  const JsonValue* attention = config.given("attn_config");
  if (attention == nullptr || !attention->is(JsonKind::Object)) return;
  const JsonValue* alibi = attention->given("alibi");
  if (alibi != nullptr && alibi->is(JsonKind::Bool) && !alibi->boolean) {
    if (!learned) config.fail("attn_config", "neither alibi nor learned_pos_emb: no positions");
    model.positions = PositionKind::Learned;
  }
  const JsonValue* kv = attention->given("kv_n_heads");
  if (kv != nullptr && kv->is(JsonKind::Integer)) model.kv_heads = kv->integer;
}

Transformer starcoder2() {
  return {.layers = 30,
          .hidden = 3072,
          .heads = 24,
          .kv_heads = 2,
          .ffn_hidden = 12288,
          .vocabulary = 49152,
          .max_positions = 4096,
          .positions = PositionKind::Rope,
          .initializer_range = 0.018042};
}

void finish_starcoder2(const ConfigReader& config, Transformer& model) {
  read_window(config, model);
  bool bias = true;
  config.read("use_bias", bias);
  model.qkv_bias = model.projection_bias = model.mlp_bias = bias;
}

}  // namespace rehearse::dialects
