// SPDX-License-Identifier: Apache-2.0
// Llama 4: chunks of attention, layers that do not rotate, experts beside a shared one.
#include <string>

#include "schedules/model/config/layer_config.h"
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {
namespace {

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

}  // namespace

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

// Every interleave_moe_layer_step-th layer has experts, or those that moe_layers lists; their width
// intermediate_size is that of the shared one too; dense layers have intermediate_size_mlp.
void finish_llama4_text(const ConfigReader& config, Transformer& model) {
  read_llama4_attention(config, model);
  Experts& experts = model.experts;
  config.read("num_experts", experts.count);
  config.read("num_experts_per_tok", experts.per_token);
  experts.ffn_hidden = experts.shared_ffn_hidden = model.ffn_hidden;
  model.ffn_hidden = 16384;
  config.read("intermediate_size_mlp", model.ffn_hidden);
  std::int64_t step = 1;
  config.read("interleave_moe_layer_step", step);
  const JsonValue* listed = config.given("moe_layers");
  place_experts(model, [&](std::int64_t layer) {
    return listed == nullptr ? (layer + 1) % step == 0 : lists(listed, layer);
  });
}

}  // namespace rehearse::dialects
