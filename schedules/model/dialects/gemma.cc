// SPDX-License-Identifier: Apache-2.0
// Gemma 2 and 3.
#include <cmath>

#include "schedules/model/config/layer_config.h"
#include "schedules/model/dialects/families.h"

namespace rehearse::dialects {
namespace {

void read_gemma(const ConfigReader& config, Transformer& model, std::int64_t pattern) {
  read_window(config, model);
  double scalar = 256;
  config.read("query_pre_attn_scalar", scalar);
  model.attention_scale = 1 / std::sqrt(scalar);
  config.read("final_logit_softcapping", model.final_softcap);
  if (config.is_null("final_logit_softcapping")) model.final_softcap = 0;
  read_windows(config, model, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
}

}  // namespace

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

void finish_gemma2(const ConfigReader& config, Transformer& model) {
  read_gemma(config, model, 2);
  config.read("attn_logit_softcapping", model.attention_softcap);
  if (config.is_null("attn_logit_softcapping")) model.attention_softcap = 0;
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

void finish_gemma3_text(const ConfigReader& config, Transformer& model) {
  std::int64_t pattern = 6;
  config.read("sliding_window_pattern", pattern);
  read_gemma(config, model, pattern);
  config.read("rope_local_base_freq", model.windowed_rotary.theta);
}

}  // namespace rehearse::dialects
