// SPDX-License-Identifier: Apache-2.0
// DeepSeek and GLM, whose experts come in groups, some of them shared.
#include "schedules/model/config/layer_config.h"
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {
namespace {

// The widths and groups that DeepSeek and GLM files say alike. Layer i has experts where
// i >= first_k_dense_replace (`dense`: what the class has) and i mod moe_layer_freq = 0.
void read_grouped_experts(const ConfigReader& config, Transformer& model, std::int64_t dense) {
  Experts& experts = model.experts;
  std::int64_t shared = experts.shared_ffn_hidden, step = 1;
  config.read("num_experts", experts.count);
  if (config.is_null("num_experts")) experts.count = 0;  // DeepSeek's own files: dense layers
  config.read("num_experts_per_tok", experts.per_token);
  config.read("moe_intermediate_size", experts.ffn_hidden);
  config.read("n_shared_experts", shared);
  if (config.is_null("n_shared_experts")) shared = 0;
  config.read("first_k_dense_replace", dense);
  config.read("moe_layer_freq", step);
  config.read("n_group", experts.groups);
  config.read("topk_group", experts.kept_groups);
  config.read("routed_scaling_factor", experts.weight_scale);
  config.read("num_nextn_predict_layers", model.prediction_layers);
  experts.shared_ffn_hidden = shared * experts.ffn_hidden;
  place_experts(model, [&](std::int64_t layer) { return layer >= dense && layer % step == 0; });
}

void read_deepseek(const ConfigReader& config, Transformer& model, std::int64_t dense) {
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
  read_grouped_experts(config, model, dense);
}

}  // namespace

Transformer deepseek_v2() {
  Transformer model = llama_like(32, 4096, 32, 32, 11008, 102400, 2048);
  model.latent = {.q_lora_rank = 1536,
                  .kv_lora_rank = 512,
                  .qk_nope_head_dim = 128,
                  .qk_rope_head_dim = 64,
                  .v_head_dim = 128};
  // The class does not say how many of them a token is sent to.
  model.experts = {.count = 64,
                   .ffn_hidden = 1407,
                   .shared_ffn_hidden = 2,  // shared experts; times their width in finish
                   .normalised = false};
  return model;
}

// Weights are never normalised, and groups count only where the file asks for them.
void finish_deepseek_v2(const ConfigReader& config, Transformer& model) {
  read_deepseek(config, model, 0);
  if (config.text("topk_method", "greedy") == "greedy") {
    model.experts.groups = model.experts.kept_groups = 1;
  }
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
                   .groups = 8,
                   .kept_groups = 4,
                   .group_best = 2,
                   .sigmoid = true,
                   .weight_scale = 2.5,
                   .correction_bias = true};
  return model;
}

void finish_deepseek_v3(const ConfigReader& config, Transformer& model) {
  config.read("norm_topk_prob", model.experts.normalised);
  if (config.is_null("norm_topk_prob")) model.experts.normalised = false;
  read_deepseek(config, model, 3);
  config.read("rope_interleave", model.rotary.interleaved);
  if (config.is_null("rope_interleave")) model.rotary.interleaved = false;
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

// Queries, keys and values alone have biases.
void finish_glm4(const ConfigReader&, Transformer& model) {
  model.projection_bias = false;
}

Transformer glm4_moe() {
  Transformer model = llama_like(46, 4096, 96, 8, 10944, 151552, 131072);
  model.norm_epsilon = 1e-5;
  model.rotary.share = 0.5;
  model.experts = {.count = 128,
                   .per_token = 8,
                   .ffn_hidden = 1408,
                   .shared_ffn_hidden = 1,  // shared experts; times their width in finish
                   .group_best = 2,
                   .sigmoid = true,
                   .correction_bias = true};
  return model;
}

// Queries, keys and values alone have biases here.
void finish_glm4_moe(const ConfigReader& config, Transformer& model) {
  model.projection_bias = false;
  // The class divides without a rest where the file leaves it out: 4096 / 96 = 42.
  if (model.head_dim == 0) model.head_dim = model.hidden / model.heads;
  config.read("use_qk_norm", model.query_key_norm);
  config.read("norm_topk_prob", model.experts.normalised);
  if (config.is_null("norm_topk_prob")) model.experts.normalised = false;
  read_grouped_experts(config, model, 1);
}

}  // namespace rehearse::dialects
