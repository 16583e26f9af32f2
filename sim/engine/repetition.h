// SPDX-License-Identifier: Apache-2.0
// Where a performed step repeats itself exactly: docs/steady_state.md.
//
// A step with few micro-batches stands for one with many if in its middle every row does the same
// ops again, each the same number of nanoseconds later: then the engines, which know nothing of
// what is to come, would go on so as long as the program does. One period is found, and who needs
// sums over the whole step counts its ops as often as they happen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedules/ir/schedule.h"
#include "sim/cost/cost.h"
#include "sim/engine/timeline.h"

namespace rehearse::sim {

struct Repetition {
  // Per row: ops [begin, begin + length) are one period; every row does something in it.
  std::vector<std::int32_t> begin, length;
  Nanoseconds period{};
  // What starts from here on starts so much later in a step with more periods.
  Nanoseconds until{};
  std::int32_t microbatches = 0;  // of one period, all directions together

  bool contains(RankClass row, OpId op) const {
    const std::int32_t place = op.value - begin[row.index()];
    return place >= 0 && place < length[row.index()];
  }
};

// `relative`: relative_ops(schedule). `until`: per row the first op that a step with more
// micro-batches might not have. `multiple`: a period has a multiple of so many micro-batches.
// None: nothing repeats for long enough before those ops, or the host of a row falls behind.
// REQUIRES: Op::key is when the lowering would start an op; nothing varies by chance.
std::optional<Repetition> find_repetition(const Schedule& schedule,
                                          std::span<const std::uint64_t> relative,
                                          const CostTable& costs, const Timeline& timeline,
                                          std::span<const std::int32_t> until,
                                          std::int32_t multiple);

}  // namespace rehearse::sim
