// SPDX-License-Identifier: Apache-2.0
// Rotary positions as files say them: `rope_scaling` (transformers 4) and `rope_parameters` (5).
#pragma once

#include "schedules/base/json_keys.h"
#include "schedules/model/hf_dialects.h"

namespace rehearse {

// The members that both have, with their kinds; others are taken unread.
extern const KeyTable kRopeTable;
// `model.rope_theta` where one of them says it. Errors: both are given; they contradict rope_theta.
void read_rope(const ConfigReader& config, Transformer& model);
// Rotary positions without scaling; at most `rope_type` "default", `rope_theta`, and the whole
// head.
bool is_plain_rope(const JsonValue& rope);
// The share of a head that GPT-NeoX rotates.
double rotated_share(const JsonValue& file);

}  // namespace rehearse
