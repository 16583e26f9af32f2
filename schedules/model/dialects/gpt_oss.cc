// SPDX-License-Identifier: Apache-2.0
// gpt-oss: sinks, windows, a gated unit of its own, experts with biases.
#include "schedules/model/config/layer_config.h"
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {

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

void finish_gpt_oss(const ConfigReader& config, Transformer& model) {
  read_window(config, model);
  read_windows(config, model, [](std::int64_t layer) { return layer % 2 == 0; });
  const JsonValue* scaling = config.given("rope_scaling");
  const bool scales = scaling != nullptr && !scaling->members.empty();  // {} is nothing
  if (config.given("rope_parameters") == nullptr && !scales) {
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

}  // namespace rehearse::dialects
