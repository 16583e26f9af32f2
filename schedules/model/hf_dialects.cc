// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/hf_dialects.h"

#include <array>

namespace rehearse {
namespace {

constexpr std::array<Spelling, 6> kGpt2Spellings{{
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"activation_function", "hidden_act"},
}};
constexpr std::array<Spelling, 2> kNeoxSpellings{{
    {"rotary_emb_base", "rope_theta"},
    {"hidden_dropout", "resid_pdrop"},
}};
constexpr std::array<Spelling, 5> kBloomSpellings{{
    {"n_embed", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"seq_length", "max_position_embeddings"},
    {"hidden_dropout", "resid_pdrop"},
}};
constexpr std::array<Spelling, 4> kMptSpellings{{
    {"d_model", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"max_seq_len", "max_position_embeddings"},
}};
constexpr std::array<Spelling, 1> kLocalSpellings{{{"num_local_experts", "num_experts"}}};
constexpr std::array<Spelling, 2> kGptOssSpellings{{
    {"num_local_experts", "num_experts"},
    {"experts_per_token", "num_experts_per_tok"},
}};
constexpr std::array<Spelling, 2> kDeepseekSpellings{{
    {"n_routed_experts", "num_experts"},
    {"num_local_experts", "num_experts"},
}};

// RMS norms, gated MLP, rotary positions, no biases, untied: what Llama began.
Transformer llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocabulary,
                       std::int64_t positions) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn_hidden = ffn,
          .vocabulary = vocabulary,
          .max_positions = positions,
          .norm = NormKind::RmsNorm,
          .mlp = MlpKind::Gated,
          .positions = PositionKind::Rope,
          .qkv_bias = false,
          .projection_bias = false,
          .mlp_bias = false,
          .tied_embedding = false,
          .norm_epsilon = 1e-6};
}

Transformer gpt2() {
  return {.layers = 12, .hidden = 768, .heads = 12, .vocabulary = 50257, .max_positions = 1024};
}
Transformer llama() {
  return llama_like(32, 4096, 32, 0, 11008, 32000, 2048);
}
Transformer mistral() {
  Transformer model = llama_like(32, 4096, 32, 8, 14336, 32000, 131072);
  model.sliding_window = 4096;
  return model;
}
Transformer mixtral() {
  Transformer model = llama_like(32, 4096, 32, 8, 14336, 32000, 131072);
  model.rope_theta = 1e6;
  model.norm_epsilon = 1e-5;
  model.experts = {.count = 8, .per_token = 2};
  return model;
}
Transformer qwen2() {
  Transformer model = llama_like(32, 4096, 32, 32, 22016, 151936, 32768);
  model.qkv_bias = true;
  return model;
}
Transformer qwen3() {
  Transformer model = llama_like(32, 4096, 32, 32, 22016, 151936, 32768);
  model.head_dim = 128;
  model.query_key_norm = true;
  return model;
}
Transformer qwen2_moe() {
  Transformer model = llama_like(24, 2048, 16, 16, 5632, 151936, 32768);
  model.qkv_bias = true;
  model.experts = {.count = 60,
                   .per_token = 4,
                   .ffn_hidden = 1408,
                   .shared_ffn_hidden = 5632,
                   .shared_gate = true};
  return model;
}
Transformer qwen3_moe() {
  Transformer model = llama_like(24, 2048, 32, 4, 6144, 151936, 32768);
  model.query_key_norm = true;
  model.experts = {.count = 128, .per_token = 8, .ffn_hidden = 768};
  return model;
}
Transformer gpt_neox() {
  return {.layers = 44,
          .hidden = 6144,
          .heads = 64,
          .ffn_hidden = 24576,
          .vocabulary = 50432,
          .max_positions = 2048,
          .positions = PositionKind::Rope,
          .parallel_residual = true,
          .tied_embedding = false};
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
Transformer mpt() {
  return {.layers = 24,
          .hidden = 2048,
          .heads = 16,
          .vocabulary = 50368,
          .max_positions = 2048,
          .norm_bias = false,
          .positions = PositionKind::Alibi,
          .qkv_bias = false,
          .projection_bias = false,
          .mlp_bias = false};
}
Transformer deepseek_v2() {
  Transformer model = llama_like(30, 4096, 32, 32, 11008, 102400, 2048);
  model.latent = {.q_lora_rank = 1536,
                  .kv_lora_rank = 512,
                  .qk_nope_head_dim = 128,
                  .qk_rope_head_dim = 64,
                  .v_head_dim = 128};
  model.experts.ffn_hidden = 1407;
  return model;
}
Transformer deepseek_v3() {
  Transformer model = llama_like(61, 7168, 128, 128, 18432, 129280, 4096);
  model.latent = {.q_lora_rank = 1536,
                  .kv_lora_rank = 512,
                  .qk_nope_head_dim = 128,
                  .qk_rope_head_dim = 64,
                  .v_head_dim = 128};
  model.experts = {.count = 256,
                   .per_token = 8,
                   .ffn_hidden = 2048,
                   .shared_ffn_hidden = 1,  // shared experts; times their width in finish
                   .first_layer = 3};
  return model;
}
Transformer gpt_oss() {
  Transformer model = llama_like(36, 2880, 64, 8, 2880, 201088, 131072);
  model.head_dim = 64;
  model.qkv_bias = model.projection_bias = true;
  model.attention_sinks = true;
  model.rope_theta = 150000;
  model.norm_epsilon = 1e-5;
  model.experts = {.count = 128, .per_token = 4, .bias = true};
  return model;
}

void finish_gpt_neox(const ConfigReader& config, Transformer& model) {
  config.read("use_parallel_residual", model.parallel_residual);
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

void finish_mistral(const ConfigReader& config, Transformer& model) {
  config.read("sliding_window", model.sliding_window);
  if (config.is_null("sliding_window")) model.sliding_window = 0;
}

void finish_qwen(const ConfigReader& config, Transformer& model) {
  bool windowed = false;
  std::int64_t window = 4096;
  config.read("use_sliding_window", windowed);
  config.read("sliding_window", window);
  if (windowed && !config.is_null("sliding_window")) model.sliding_window = window;
}

void finish_mixtral(const ConfigReader& config, Transformer& model) {
  finish_mistral(config, model);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

void finish_gpt_oss(const ConfigReader& config, Transformer& model) {
  // Every second layer is windowed (128 tokens); there is one switch for all layers, so none is.
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

// Layer i has experts where (i + 1) mod decoder_sparse_step = 0 and i is not in mlp_only_layers.
void finish_qwen_moe(const ConfigReader& config, Transformer& model) {
  finish_qwen(config, model);
  Experts& experts = model.experts;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("qkv_bias", model.qkv_bias);
  config.read("shared_expert_intermediate_size", experts.shared_ffn_hidden);
  config.read("decoder_sparse_step", experts.layer_step);
  experts.first_layer = experts.layer_step - 1;
  const JsonValue* dense = config.given("mlp_only_layers");
  if (dense == nullptr || dense->items.empty()) return;
  for (std::size_t i = 0; i < dense->items.size(); ++i) {
    if (dense->items[i].integer == static_cast<std::int64_t>(i) && experts.layer_step == 1)
      continue;
    return config.fail("mlp_only_layers", "only the first layers can be dense ([0, 1, ...])", true);
  }
  experts.first_layer = static_cast<std::int64_t>(dense->items.size());
}

// Layer i has experts where i >= first_k_dense_replace and i mod moe_layer_freq = 0.
void finish_deepseek(const ConfigReader& config, Transformer& model) {
  LatentAttention& latent = model.latent;
  config.read("q_lora_rank", latent.q_lora_rank);
  if (config.is_null("q_lora_rank")) latent.q_lora_rank = 0;
  config.read("kv_lora_rank", latent.kv_lora_rank);
  config.read("qk_nope_head_dim", latent.qk_nope_head_dim);
  config.read("qk_rope_head_dim", latent.qk_rope_head_dim);
  config.read("v_head_dim", latent.v_head_dim);
  // In these files head_dim is what rotates.
  model.head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
  Experts& experts = model.experts;
  std::int64_t shared = experts.shared_ffn_hidden;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("n_shared_experts", shared);
  if (config.is_null("n_shared_experts")) shared = 0;
  config.read("first_k_dense_replace", experts.first_layer);
  config.read("moe_layer_freq", experts.layer_step);
  experts.first_layer =
      (experts.first_layer + experts.layer_step - 1) / experts.layer_step * experts.layer_step;
  experts.shared_ffn_hidden = shared * experts.ffn_hidden;
  if (experts.count == 0) experts = {};
}

constexpr std::array<Dialect, 14> kDialects{{
    {"gpt2", kGpt2Spellings, gpt2, nullptr},
    {"llama", {}, llama, nullptr},
    {"mistral", {}, mistral, finish_mistral},
    {"mixtral", kLocalSpellings, mixtral, finish_mixtral},
    {"qwen2", {}, qwen2, finish_qwen},
    {"qwen2_moe", {}, qwen2_moe, finish_qwen_moe},
    {"qwen3", {}, qwen3, finish_qwen},
    {"qwen3_moe", kLocalSpellings, qwen3_moe, finish_qwen_moe},
    {"gpt_neox", kNeoxSpellings, gpt_neox, finish_gpt_neox},
    {"bloom", kBloomSpellings, bloom, nullptr},
    {"mpt", kMptSpellings, mpt, finish_mpt},
    // No published DeepSeek model has another activation than SiLU: "gelu" is how measured cases
    // of Megatron-LM say its two-matrix MLP (its latent attention without --swiglu).
    {"deepseek_v2", kDeepseekSpellings, deepseek_v2, finish_deepseek, true},
    {"deepseek_v3", kDeepseekSpellings, deepseek_v3, finish_deepseek, true},
    {"gpt_oss", kGptOssSpellings, gpt_oss, finish_gpt_oss},
}};

}  // namespace

std::span<const Dialect> config_dialects() {
  return kDialects;
}

}  // namespace rehearse
