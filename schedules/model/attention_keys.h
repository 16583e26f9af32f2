// SPDX-License-Identifier: Apache-2.0
// Keys that FLOP conventions count as a whole square. What causal queries see of them is
// attention_pairs (model.h), half of a square without windows.
#pragma once

#include <cstdint>

#include "schedules/model/model.h"

namespace rehearse {

// Pairs of query and key in a layer, the mean over the layers: s^2, where a layer has a window of w
// s min(w, s), the squares of its chunks where it has chunks.
double squared_pairs(const Transformer& model, std::int64_t sequence_length);

}  // namespace rehearse
