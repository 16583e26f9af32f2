// SPDX-License-Identifier: Apache-2.0
// GPUs that differ: the scenario's key `variation`.
//
// Every collective waits for its slowest member, so on thousands of GPUs the slowest decides.
// MegaScale (arXiv 2402.15627, section 5.2) found a few hosts of 10 % less speed in a cluster, and
// 0.7 points of MFU more without them.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"

namespace rehearse {

struct SlowRanks {
  std::int32_t first = 0, last = 0;  // ranks [first, last]
  double speed = 1;                  // of a GPU as described: 0.9 computes a tenth less in a second
};

struct Variation {
  std::int64_t seed = 0;
  double speed_sigma = 0;   // relative spread of the ranks' speeds, fixed for the step
  double jitter_sigma = 0;  // relative spread of single ops' times
  std::vector<SlowRanks> slow;

  bool any() const { return speed_sigma > 0 || jitter_sigma > 0 || !slow.empty(); }
};

extern const KeyTable kVariation;

// REQUIRES: `value` passed check_keys with kVariation. Errors in `report`: a list of ranks that is
// none, or beyond `gpus`.
Variation read_variation(const JsonValue& value, std::int32_t gpus, JsonReport& report);

}  // namespace rehearse
