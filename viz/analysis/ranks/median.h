// SPDX-License-Identifier: Apache-2.0
// The median over ranks of times that some ranks have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rehearse::viz {

struct TimeOfRanks {
  std::int64_t time = 0, ranks = 1;  // [ns]; how many take that long
};

// The time that at most half of the ranks stay below; of an even number the lower middle one. 0 of
// none. Orders `times` anew.
inline std::int64_t median_of(std::vector<TimeOfRanks>& times) {
  std::int64_t all = 0, below = 0;
  for (const TimeOfRanks& one : times) all += one.ranks;
  if (times.empty()) return 0;
  if (all == static_cast<std::int64_t>(times.size())) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::ranges::nth_element(times, middle, {}, &TimeOfRanks::time);
    return middle->time;
  }
  std::ranges::sort(times, {}, &TimeOfRanks::time);
  for (const TimeOfRanks& one : times) {
    below += one.ranks;
    if (below > (all - 1) / 2) return one.time;
  }
  return 0;
}

}  // namespace rehearse::viz
