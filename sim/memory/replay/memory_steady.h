// SPDX-License-Identifier: Apache-2.0
// Where a row's program repeats itself, so that a replay may leave repetitions out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::sim {

// Op i + period does what op i does, shift[stage of i] micro-batches later, for all i in [begin,
// end). Period 0: nowhere for long enough.
struct SteadyPhase {
  std::size_t begin = 0, end = 0, period = 0;
  std::vector<std::int32_t> shift;  // per stage of the schedule; 0: not of this row
};
SteadyPhase steady_phase(const Schedule& order, RankClass row);

// Per position in the row's program (and one past its end): forwards before it whose backward is
// not. Empty where backwards are split or overlapped with forwards.
std::vector<std::int32_t> in_flight_counts(const Schedule& order, RankClass row);
// Those forwards themselves, oldest first.
std::vector<Op> in_flight(const Schedule& order, RankClass row, std::size_t position);

}  // namespace rehearse::sim
