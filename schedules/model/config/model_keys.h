// SPDX-License-Identifier: Apache-2.0
// Every key of a config.json that some dialect reads, with its kind and range.
#pragma once

#include "schedules/base/json_keys.h"

namespace rehearse {

inline constexpr double kMaxWidth = 1 << 20;  // hidden, heads x head size and the like

const KeyTable& model_key_table();

}  // namespace rehearse
