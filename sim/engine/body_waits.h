// SPDX-License-Identifier: Apache-2.0
// What a compute op's body waits for while the op runs: idle time of its rank, by what it waits
// for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/cost/cost.h"
#include "sim/engine/timeline.h"

namespace rehearse::sim {

struct BodyWaits {
  std::int64_t alone = 0;   // [ns] its own collectives, on idle links
  std::int64_t shared = 0;  // what these lost to others on their links
  std::int64_t held = 0;    // the slowest rank of its group
  std::int64_t uneven = 0;  // the rank with the most rows of experts

  std::int64_t sum() const { return alone + shared + held + uneven; }
};

// Together at most what the op lasted. REQUIRES: the timeline is of these costs.
inline BodyWaits body_waits(const CostTable& costs, const Timeline& timeline, OpId op) {
  std::int64_t rest = (timeline.end[op.index()] - timeline.start[op.index()]).value;
  const auto take = [&rest](std::int64_t wanted) {
    const std::int64_t taken = std::min(wanted, rest);
    rest -= taken;
    return taken;
  };
  const auto of = [op](const std::vector<Nanoseconds>& column) {
    return column.empty() ? 0 : column[op.index()].value;
  };
  BodyWaits waits;
  waits.alone = take(costs.cost(op).communicating.value);
  waits.shared = take(of(timeline.contended));
  waits.held = take(of(timeline.held));
  waits.uneven = take(costs.cost(op).imbalanced.value);
  return waits;
}

}  // namespace rehearse::sim
