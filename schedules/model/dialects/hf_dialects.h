// SPDX-License-Identifier: Apache-2.0
// The dialects of config.json as a table: one row per model_type (Hugging Face transformers,
// src/transformers/models/*/configuration_*.py; defaults as of version 4.46). What becomes of every
// key: config_keys.h.
#pragma once

#include <span>
#include <string_view>

#include "schedules/model/dialects/config_reader.h"
#include "schedules/model/model.h"

namespace rehearse {

struct Dialect {
  std::string_view model_type;
  std::span<const Spelling> spellings;  // beside the common names
  Transformer (*defaults)();            // kv_heads, head_dim, ffn_hidden 0: derived
  void (*finish)(const ConfigReader& config, Transformer& model);  // what is its own; may be null
  bool two_matrix_gelu = false;  // a plain "gelu" means an ungated MLP (else gated models stay so)
};

std::span<const Dialect> config_dialects();

}  // namespace rehearse
