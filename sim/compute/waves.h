// SPDX-License-Identifier: Apache-2.0
// Few tiles on many SMs: what the last round leaves idle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rehearse::sim {

// Share of the SMs that tiles of equal work keep busy, one a time on each, (0, 1]; beyond four
// waves the last one is a small part.
inline double busy_share(std::int64_t tiles, std::int32_t sms) {
  constexpr double kFewWaves = 4;
  const double waves = static_cast<double>(tiles) / std::max(1, sms);
  return waves > 0 && waves < kFewWaves ? waves / std::ceil(waves) : 1;
}

}  // namespace rehearse::sim
