// SPDX-License-Identifier: Apache-2.0
// Llama, and dialects that differ from it by a few words.
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {

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

void read_window(const ConfigReader& config, Transformer& model) {
  config.read("sliding_window", model.sliding_window);
  if (config.is_null("sliding_window")) {
    model.sliding_window = 0;
  } else if (config.given("sliding_window") != nullptr && model.sliding_window == 0) {
    config.fail("sliding_window", "0: a query would see no key; null is no window");
  }
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

void finish_mixtral(const ConfigReader& config, Transformer& model) {
  read_window(config, model);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

Transformer phi3() {
  Transformer model = llama_like(32, 3072, 32, 0, 8192, 32064, 4096);
  model.norm_epsilon = 1e-5;
  model.rotary.original_positions = 4096;
  model.padding_token = 32000;
  return model;
}

void finish_phi3(const ConfigReader& config, Transformer& model) {
  read_window(config, model);
  config.read("original_max_position_embeddings", model.rotary.original_positions);
  model.dropouts.embedding = -1;  // the class reads embd_pdrop, and does nothing with it
}

Transformer olmo2() {
  Transformer model = llama_like(32, 4096, 32, 0, 11008, 50304, 2048);
  model.norm_epsilon = 1e-5;
  model.norm_placement = NormPlacement::After;
  model.query_key_norm_whole = true;
  model.padding_token = 1;
  return model;
}

Transformer olmoe() {
  Transformer model = llama_like(16, 2048, 16, 0, 2048, 50304, 4096);
  model.norm_epsilon = 1e-5;
  model.query_key_norm_whole = true;
  model.experts = {.count = 64, .per_token = 8, .normalised = false};
  model.padding_token = 1;
  return model;
}

// As transformers reads mlp layers with `num_experts` experts of the MLP's own width.
void finish_olmoe(const ConfigReader& config, Transformer& model) {
  config.read("norm_topk_prob", model.experts.normalised);
  config.read("num_experts", model.experts.count);
  config.read("num_experts_per_tok", model.experts.per_token);
  model.experts.ffn_hidden = model.ffn_hidden;
}

}  // namespace rehearse::dialects
