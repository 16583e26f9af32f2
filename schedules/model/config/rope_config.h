// SPDX-License-Identifier: Apache-2.0
// Rotary positions as files say them: `rope_scaling` (transformers 4) and `rope_parameters` (5).
#pragma once

#include <string>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/model/dialects/config_reader.h"
#include "schedules/model/model.h"

namespace rehearse {

// The members that both have, with their kinds; check_rope_words and unread_rope_words have what
// becomes of others.
extern const KeyTable kRopeTable;
// Errors: a member that nobody knows is a typing mistake for one that the object lacks: it would
// change the mathematics in silence. `key` is the object's path.
void check_rope_words(const JsonValue& rope, const std::string& key, JsonReport& report);
// The other members that nobody knows, one sentence each: ".finetuned_by: ...".
std::vector<std::string> unread_rope_words(const JsonValue& rope);
// `model.rotary` where the file says it; of gemma 3, which says it by kind of layer, also
// `model.windowed_rotary`. Errors: both objects are given; one contradicts rope_theta; a kind lacks
// a member that it needs. REQUIRES: the model's dimensions are read.
void read_rope(const ConfigReader& config, Transformer& model);
// Rotary positions of a kind that `run` performs.
bool is_performed_rope(const JsonValue& rope);

}  // namespace rehearse
