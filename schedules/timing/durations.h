// SPDX-License-Identifier: Apache-2.0
// Durations as people give them (`--times F=0.5,I=1,W=1,comm=0.01`, a case's `schedule.times`), and
// the integers that a schedule is timed in. Any unit; results are in the same unit.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/base/result.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse {

// Times of one pipeline position and one micro-batch, all chunks that it visits there together.
struct Durations {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  // F, I, W
  double transfer = 0;                                          // comm: one transfer
  double pair = -1;  // FB: an overlapped pair; -1: F + I + W
};

struct Ticks {
  PositionTimes times;
  double per_unit = 1;  // ticks / per_unit = time in the user's unit
};

// "F=1,I=1,W=1,comm=0,FB=2": every part may be left out. The error names the part.
Result<Durations> parse_durations(std::string_view text);

// The decimal digits of the durations as integers, each divisible by `parts` (chunks x slices), so
// that sums are exact. Where there are more digits than fit (sums over positions * microbatches ops
// stay below 2^62), the last ones are rounded; the relative error is then below 1e-12.
// Errors: a duration that is negative or not finite.
Result<Ticks> to_ticks(const Durations& durations, std::int64_t parts, std::int64_t positions,
                       std::int64_t microbatches);

}  // namespace rehearse
