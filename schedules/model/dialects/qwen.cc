// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 3, dense and with experts.
#include <algorithm>

#include "schedules/model/config/layer_config.h"
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {
namespace {

void read_qwen_window(const ConfigReader& config, Transformer& model) {
  bool windowed = false;
  config.read("use_sliding_window", windowed);
  if (!windowed) return;
  model.sliding_window = 4096;
  read_window(config, model);
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
  std::int64_t step = 1;
  config.read("decoder_sparse_step", step);
  const JsonValue* dense = config.given("mlp_only_layers");
  place_experts(
      model, [&](std::int64_t layer) { return (layer + 1) % step == 0 && !lists(dense, layer); });
}

}  // namespace

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

void finish_qwen2(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  std::int64_t first = 28;
  config.read("max_window_layers", first);
  read_windows(config, model, [&](std::int64_t layer) { return layer >= first; });
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

// Windows of every second one of the first max_window_layers (Qwen2MoeConfig.__post_init__).
void finish_qwen2_moe(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  std::int64_t before = 28;
  config.read("max_window_layers", before);
  read_windows(config, model,
               [&](std::int64_t layer) { return (layer + 1) % 2 != 0 && layer < before; });
  const bool windows =
      std::ranges::find(model.windowed_layers, true) != model.windowed_layers.end();
  if (config.given("layer_types") != nullptr && windows && model.sliding_window == 0) {
    return config.fail(
        "layer_types",
        "sliding_attention without use_sliding_window: the class makes the window 0, "
        "and a query would see no key");
  }
  read_qwen_experts(config, model);
}

Transformer qwen3_moe() {
  Transformer model = llama_like(24, 2048, 32, 4, 6144, 151936, 32768);
  model.query_key_norm = true;
  model.experts = {.count = 128, .per_token = 8, .ffn_hidden = 768, .normalised = false};
  return model;
}

// Windows of all layers: the class reads neither max_window_layers nor layer_types.
void finish_qwen3_moe(const ConfigReader& config, Transformer& model) {
  read_qwen_window(config, model);
  read_qwen_experts(config, model);
}

}  // namespace rehearse::dialects
