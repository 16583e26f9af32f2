// SPDX-License-Identifier: Apache-2.0
// What config.json says of a layer's parts under several names: activation, dropout, windows; and
// which layers have experts.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/model/dialects/hf_dialects.h"

namespace rehearse {

void read_activation(const ConfigReader& config, const Dialect& dialect, Transformer& model);
// Rates that the file says; 0 for those that it does not, whatever the class's default.
void read_dropout(const ConfigReader& config, Transformer& model);
// `model.windowed_layers` by layer_types, or where the file lacks it by `otherwise` of a layer.
// Errors: another number of items than layers; a kind of attention that is neither whole nor
// `local`. REQUIRES: the number of layers is read.
void read_windows(const ConfigReader& config, Transformer& model,
                  const std::function<bool(std::int64_t)>& otherwise,
                  std::string_view local = "sliding_attention");
// `model.experts.layers`. A model none of whose layers has experts is a dense one. REQUIRES: the
// number of layers is read, and all else of the experts.
void place_experts(Transformer& model, const std::function<bool(std::int64_t)>& has);
// Whether a list of layers has the layer; nullptr has none. As in transformers, it may have others
// than the model's.
bool lists(const JsonValue* layers, std::int64_t layer);

}  // namespace rehearse
