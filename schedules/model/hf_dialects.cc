// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/hf_dialects.h"

#include <array>
#include <cmath>

#include "schedules/model/layer_config.h"

namespace rehearse {
namespace {

constexpr std::array<Spelling, 7> kGpt2Spellings{{
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"activation_function", "hidden_act"},
    {"num_local_experts", "num_experts"},
}};
constexpr std::array<Spelling, 1> kNeoxSpellings{{{"hidden_dropout", "resid_pdrop"}}};
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
constexpr std::array<Spelling, 3> kGlmSpellings{{
    {"n_routed_experts", "num_experts"},
    {"num_local_experts", "num_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
}};

constexpr std::array<Spelling, 2> kStarcoder2Spellings{{
    {"residual_dropout", "resid_pdrop"},
    {"embedding_dropout", "embd_pdrop"},
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
          .activation = ActivationKind::Silu,
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
  model.rotary.theta = 1e6;
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
                   .shared_gate = true,
                   .normalised = false};
  return model;
}
Transformer qwen3_moe() {
  Transformer model = llama_like(24, 2048, 32, 4, 6144, 151936, 32768);
  model.query_key_norm = true;
  model.experts = {.count = 128, .per_token = 8, .ffn_hidden = 768, .normalised = false};
  return model;
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
          .activation = ActivationKind::GeluExact,
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
  model.experts.normalised = false;
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
                   .first_layer = 3,
                   .groups = 8,
                   .kept_groups = 4,
                   .group_best = 2,
                   .sigmoid = true,
                   .weight_scale = 2.5,
                   .correction_bias = true};
  return model;
}
Transformer glm4_moe() {
  Transformer model = llama_like(46, 4096, 96, 8, 10944, 151552, 131072);
  model.norm_epsilon = 1e-5;
  model.rotary.share = 0.5;
  model.experts = {.count = 128,
                   .per_token = 8,
                   .ffn_hidden = 1408,
                   .shared_ffn_hidden = 1,  // shared experts; times their width in finish
                   .first_layer = 1,
                   .group_best = 2,
                   .sigmoid = true,
                   .correction_bias = true};
  return model;
}
Transformer olmoe() {
  Transformer model = llama_like(16, 2048, 16, 16, 2048, 50304, 4096);
  model.norm_epsilon = 1e-5;
  model.query_key_norm_whole = true;
  model.experts = {.count = 64, .per_token = 8, .normalised = false};
  model.padding_token = 1;
  return model;
}
Transformer llama4_text() {
  Transformer model = llama_like(48, 5120, 40, 8, 8192, 202048, 131072);
  model.head_dim = 128;
  model.rotary.theta = 500000;
  model.norm_epsilon = 1e-5;
  model.rotary.interleaved = true;
  model.query_key_unit_norm = true;
  model.attention_chunk = 8192;
  model.temperature_scale = 0.1;
  model.temperature_floor = 8192;
  model.experts = {
      .count = 16, .per_token = 1, .sigmoid = true, .normalised = false, .weighs_input = true};
  return model;
}
Transformer gpt_oss() {
  Transformer model = llama_like(36, 2880, 64, 8, 2880, 201088, 131072);
  model.head_dim = 64;
  model.qkv_bias = model.projection_bias = true;
  model.attention_sinks = true;
  model.sliding_window = 128;
  model.rotary.theta = 150000;
  model.norm_epsilon = 1e-5;
  model.experts = {.count = 128, .per_token = 4, .bias = true, .glu_limit = 7, .glu_alpha = 1.702};
  return model;
}
// Gemma 2 (arXiv 2408.00118): norms around both blocks, soft caps, every second layer a window.
Transformer gemma2() {
  Transformer model = llama_like(26, 2304, 8, 4, 9216, 256000, 8192);
  model.head_dim = 256;
  model.norm_placement = NormPlacement::Around;
  model.norm_from_one = model.scaled_embedding = model.tied_embedding = true;
  model.activation = ActivationKind::GeluTanh;
  model.attention_scale = 1.0 / 16;
  model.attention_softcap = 50;
  model.final_softcap = 30;
  model.sliding_window = 4096;
  model.padding_token = 0;
  return model;
}
// Gemma 3 (arXiv 2503.19786): norms of queries and keys instead of soft caps, five windowed layers
// of six, whose rotary positions are others.
Transformer gemma3_text() {
  Transformer model = gemma2();
  model.vocabulary = 262208;
  model.max_positions = 131072;
  model.query_key_norm = model.rotary_by_layer_kind = true;
  model.attention_softcap = model.final_softcap = 0;
  model.rotary.theta = 1e6;
  return model;
}
Transformer phi3() {
  Transformer model = llama_like(32, 3072, 32, 0, 8192, 32064, 4096);
  model.norm_epsilon = 1e-5;
  model.rotary.original_positions = 4096;
  model.padding_token = 32000;
  return model;
}
Transformer olmo2() {
  Transformer model = llama_like(32, 4096, 32, 0, 11008, 50304, 2048);
  model.norm_epsilon = 1e-5;
  model.norm_placement = NormPlacement::After;
  model.query_key_norm_whole = true;
  model.padding_token = 1;
  return model;
}
Transformer glm4() {
  Transformer model = llama_like(40, 4096, 32, 2, 13696, 151552, 131072);
  model.head_dim = 128;
  model.norm_epsilon = 1.5625e-7;
  model.norm_placement = NormPlacement::Around;
  model.qkv_bias = true;
  model.rotary.share = 0.5;
  model.rotary.interleaved = true;
  model.padding_token = 151329;
  return model;
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

// Only queries, keys, values and the projection may lack biases (attention_bias).
void finish_gpt_neox(const ConfigReader& config, Transformer& model) {
  config.read("use_parallel_residual", model.parallel_residual);
  config.read("rotary_pct", model.rotary.share);
  model.rotary.theta = 10000;  // rope_theta has no meaning to the class
  config.read("rotary_emb_base", model.rotary.theta);
  model.dropouts.embedding = model.dropouts.residual;
}

void finish_bloom(const ConfigReader& config, Transformer& model) {
  config.read("apply_residual_connection_post_layernorm", model.norm_is_residual);
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

// transformers masks every key by a window of 0.
void read_window(const ConfigReader& config, Transformer& model) {
  config.read("sliding_window", model.sliding_window);
  if (config.is_null("sliding_window")) {
    model.sliding_window = 0;
  } else if (config.given("sliding_window") != nullptr && model.sliding_window == 0) {
    config.fail("sliding_window", "0: a query would see no key; null is no window");
  }
}

void finish_mistral(const ConfigReader& config, Transformer& model) {
  read_window(config, model);
}

void read_qwen_window(const ConfigReader& config, Transformer& model) {
  bool windowed = false;
  config.read("use_sliding_window", windowed);
  if (!windowed) return;
  model.sliding_window = 4096;
  read_window(config, model);
}

void finish_qwen(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  std::int64_t first = 28;
  config.read("max_window_layers", first);
  read_windows(config, model, [&](std::int64_t layer) { return layer >= first; });
}

void read_gemma(const ConfigReader& config, Transformer& model, std::int64_t pattern) {
  finish_mistral(config, model);
  double scalar = 256;
  config.read("query_pre_attn_scalar", scalar);
  model.attention_scale = 1 / std::sqrt(scalar);
  config.read("final_logit_softcapping", model.final_softcap);
  if (config.is_null("final_logit_softcapping")) model.final_softcap = 0;
  read_windows(config, model, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
}

void finish_gemma2(const ConfigReader& config, Transformer& model) {
  read_gemma(config, model, 2);
  config.read("attn_logit_softcapping", model.attention_softcap);
  if (config.is_null("attn_logit_softcapping")) model.attention_softcap = 0;
}

void finish_gemma3(const ConfigReader& config, Transformer& model) {
  std::int64_t pattern = 6;
  config.read("sliding_window_pattern", pattern);
  read_gemma(config, model, pattern);
  config.read("rope_local_base_freq", model.windowed_rotary.theta);
}

void finish_phi3(const ConfigReader& config, Transformer& model) {
  finish_mistral(config, model);
  config.read("original_max_position_embeddings", model.rotary.original_positions);
  model.dropouts.embedding = 0;  // the class reads embd_pdrop, and does nothing with it
}

// Queries, keys and values alone have biases.
void finish_dense_glm4(const ConfigReader&, Transformer& model) {
  model.projection_bias = false;
}

void finish_starcoder2(const ConfigReader& config, Transformer& model) {
  finish_mistral(config, model);
  bool bias = true;
  config.read("use_bias", bias);
  model.qkv_bias = model.projection_bias = model.mlp_bias = bias;
}

void finish_mixtral(const ConfigReader& config, Transformer& model) {
  finish_mistral(config, model);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

void finish_gpt_oss(const ConfigReader& config, Transformer& model) {
  finish_mistral(config, model);
  read_windows(config, model, [](std::int64_t layer) { return layer % 2 == 0; });
  if (config.given("rope_parameters") == nullptr && config.given("rope_scaling") == nullptr) {
    model.rotary.kind = RotaryKind::Yarn;  // the class's own, where the file says none
    model.rotary.factor = 32;
    model.rotary.original_positions = 4096;
    model.rotary.truncate = false;
  }
  config.read("swiglu_limit", model.experts.glu_limit);
  config.read("swiglu_alpha", model.experts.glu_alpha);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

// Layer i has experts where (i + 1) mod decoder_sparse_step = 0 and i is not in mlp_only_layers.
void read_qwen_experts(const ConfigReader& config, Transformer& model) {
  Experts& experts = model.experts;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("qkv_bias", model.qkv_bias);
  config.read("norm_topk_prob", experts.normalised);
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

// Windows of every second one of the first max_window_layers (Qwen2MoeConfig.__post_init__).
void finish_qwen2_moe(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  std::int64_t before = 28;
  config.read("max_window_layers", before);
  read_windows(config, model,
               [&](std::int64_t layer) { return (layer + 1) % 2 != 0 && layer < before; });
  read_qwen_experts(config, model);
}

// Windows of all layers: the class reads neither max_window_layers nor layer_types.
void finish_qwen3_moe(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  read_qwen_experts(config, model);
}

// As transformers reads mlp layers with `num_experts` experts of the MLP's own width.
void finish_olmoe(const ConfigReader& config, Transformer& model) {
  config.read("norm_topk_prob", model.experts.normalised);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

// Layers rotate but for every no_rope_layer_interval-th, or where no_rope_layers says 1. Those that
// do see chunks and norm their queries and keys, the others may temper their queries.
void read_llama4_attention(const ConfigReader& config, Transformer& model) {
  std::int64_t interval = 4;
  config.read("no_rope_layer_interval", interval);
  const JsonValue* listed = config.given("no_rope_layers");
  const bool said = listed != nullptr && !listed->items.empty();
  if (said && listed->items.size() < static_cast<std::size_t>(model.layers)) {
    return config.fail("no_rope_layers", "has " + std::to_string(listed->items.size()) +
                                             " items for " + std::to_string(model.layers) +
                                             " layers");
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    model.rotating_layers.push_back(said ? listed->items[static_cast<std::size_t>(layer)].integer !=
                                               0
                                         : (layer + 1) % interval != 0);
  }
  config.read("use_qk_norm", model.query_key_unit_norm);
  config.read("attention_chunk_size", model.attention_chunk);
  if (config.is_null("attention_chunk_size")) model.attention_chunk = 0;
  read_windows(
      config, model, [&](std::int64_t layer) { return model.rotates(layer); }, "chunked_attention");
  bool tempers = true;
  config.read("attn_temperature_tuning", tempers);
  config.read("attn_scale", model.temperature_scale);
  config.read("floor_scale", model.temperature_floor);
  if (!tempers) model.temperature_scale = 0;
}

// Every interleave_moe_layer_step-th layer has experts, whose width intermediate_size is that of
// the shared one too; dense layers have intermediate_size_mlp.
void finish_llama4(const ConfigReader& config, Transformer& model) {
  read_llama4_attention(config, model);
  Experts& experts = model.experts;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  config.read("interleave_moe_layer_step", experts.layer_step);
  experts.first_layer = experts.layer_step - 1;
  experts.ffn_hidden = experts.shared_ffn_hidden = model.ffn_hidden;
  model.ffn_hidden = 16384;
  config.read("intermediate_size_mlp", model.ffn_hidden);
  const JsonValue* listed = config.given("moe_layers");
  if (listed == nullptr) return;
  std::int64_t next = experts.first_layer;
  for (const JsonValue& layer : listed->items) {
    if (layer.integer != next) {
      return config.fail("moe_layers", "only every interleave_moe_layer_step-th layer", true);
    }
    next += experts.layer_step;
  }
  if (next < model.layers) {
    config.fail("moe_layers", "only every interleave_moe_layer_step-th layer", true);
  }
}

// The widths and groups that DeepSeek and GLM files say alike. Layer i has experts where
// i >= first_k_dense_replace and i mod moe_layer_freq = 0.
void read_grouped_experts(const ConfigReader& config, Transformer& model) {
  Experts& experts = model.experts;
  std::int64_t shared = experts.shared_ffn_hidden;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("n_shared_experts", shared);
  if (config.is_null("n_shared_experts")) shared = 0;
  config.read("first_k_dense_replace", experts.first_layer);
  config.read("moe_layer_freq", experts.layer_step);
  config.read("n_group", experts.groups);
  config.read("topk_group", experts.kept_groups);
  config.read("routed_scaling_factor", experts.weight_scale);
  config.read("num_nextn_predict_layers", model.prediction_layers);
  experts.first_layer =
      (experts.first_layer + experts.layer_step - 1) / experts.layer_step * experts.layer_step;
  experts.shared_ffn_hidden = shared * experts.ffn_hidden;
  if (experts.count == 0) experts = {};
}

// Queries, keys and values alone have biases here.
void finish_glm4(const ConfigReader& config, Transformer& model) {
  model.projection_bias = false;
  // The class divides without a rest where the file leaves it out: 4096 / 96 = 42.
  if (model.head_dim == 0) model.head_dim = model.hidden / model.heads;
  config.read("use_qk_norm", model.query_key_norm);
  config.read("norm_topk_prob", model.experts.normalised);
  read_grouped_experts(config, model);
}

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
  model.kv_heads = model.heads;
  model.rotary.interleaved = true;
  read_grouped_experts(config, model);
}

// Weights are never normalised, and groups count only where the file asks for them.
void finish_deepseek_v2(const ConfigReader& config, Transformer& model) {
  finish_deepseek(config, model);
  if (config.text("topk_method", "greedy") == "greedy") {
    model.experts.groups = model.experts.kept_groups = 1;
  }
}

void finish_deepseek_v3(const ConfigReader& config, Transformer& model) {
  config.read("norm_topk_prob", model.experts.normalised);
  finish_deepseek(config, model);
  config.read("rope_interleave", model.rotary.interleaved);
  if (config.is_null("rope_interleave")) model.rotary.interleaved = false;
}

constexpr std::array<Dialect, 23> kDialects{{
    {"gpt2", kGpt2Spellings, gpt2, finish_gpt2},
    {"llama", {}, llama, nullptr},
    {"mistral", {}, mistral, finish_mistral},
    {"mixtral", kLocalSpellings, mixtral, finish_mixtral},
    {"qwen2", {}, qwen2, finish_qwen},
    {"qwen2_moe", {}, qwen2_moe, finish_qwen2_moe},
    {"qwen3", {}, qwen3, finish_qwen},
    {"qwen3_moe", kLocalSpellings, qwen3_moe, finish_qwen3_moe},
    {"gpt_neox", kNeoxSpellings, gpt_neox, finish_gpt_neox},
    {"bloom", kBloomSpellings, bloom, finish_bloom},
    {"mpt", kMptSpellings, mpt, finish_mpt},
    // No published DeepSeek model has another activation than SiLU: "gelu" is how measured cases
    // of Megatron-LM say its two-matrix MLP (its latent attention without --swiglu).
    {"deepseek_v2", kDeepseekSpellings, deepseek_v2, finish_deepseek_v2, true},
    {"deepseek_v3", kGlmSpellings, deepseek_v3, finish_deepseek_v3, true},
    {"gpt_oss", kGptOssSpellings, gpt_oss, finish_gpt_oss},
    {"olmoe", kLocalSpellings, olmoe, finish_olmoe},
    {"glm4_moe", kGlmSpellings, glm4_moe, finish_glm4},
    {"llama4_text", kLocalSpellings, llama4_text, finish_llama4},
    {"gemma2", {}, gemma2, finish_gemma2},
    {"gemma3_text", {}, gemma3_text, finish_gemma3},
    {"phi3", {}, phi3, finish_phi3},
    {"olmo2", {}, olmo2, nullptr},
    {"glm4", {}, glm4, finish_dense_glm4},
    {"starcoder2", kStarcoder2Spellings, starcoder2, finish_starcoder2},
}};

}  // namespace

std::span<const Dialect> config_dialects() {
  return kDialects;
}

}  // namespace rehearse
