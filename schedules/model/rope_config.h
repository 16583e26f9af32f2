// SPDX-License-Identifier: Apache-2.0
// Rotary positions as files say them: `rope_scaling` (transformers 4) and `rope_parameters` (5).
#pragma once

#include "schedules/base/json_keys.h"
#include "schedules/model/dialects/config_reader.h"
#include "schedules/model/model.h"

namespace rehearse {

// The members that both have, with their kinds; others are taken unread.
extern const KeyTable kRopeTable;
// `model.rotary` where the file says it; of gemma 3, which says it by kind of layer, also
// `model.windowed_rotary`. Errors: both objects are given; one contradicts rope_theta; a kind lacks
// a member that it needs. REQUIRES: the model's dimensions are read.
void read_rope(const ConfigReader& config, Transformer& model);
// Rotary positions of a kind that `run` performs.
bool is_performed_rope(const JsonValue& rope);

}  // namespace rehearse
