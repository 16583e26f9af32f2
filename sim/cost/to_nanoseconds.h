// SPDX-License-Identifier: Apache-2.0
// Seconds and their parts as integer nanoseconds, without leaving what an integer holds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "schedules/base/units.h"

namespace rehearse::sim {

inline constexpr double kMicro = 1e-6;  // a microsecond in seconds

// 13 days. No op takes that long; a cost that would (or is no number) becomes this, and predict()
// refuses it by too_long(). Small enough that an op's parts can be added up without overflow.
inline constexpr Nanoseconds kForever{std::int64_t{1} << 50};

inline Nanoseconds to_nanoseconds(double ns) {
  if (!(ns < static_cast<double>(kForever.value))) return kForever;
  if (ns < -static_cast<double>(kForever.value)) return {-kForever.value};
  return {std::llround(ns)};
}
inline Nanoseconds seconds_to_nanoseconds(double seconds) {
  return to_nanoseconds(seconds * 1e9);
}

// Never beyond kForever. REQUIRES: neither is.
inline void add_time(Nanoseconds& sum, Nanoseconds more) {
  sum.value = std::min(sum.value + more.value, kForever.value);
}

}  // namespace rehearse::sim
