// SPDX-License-Identifier: Apache-2.0
// The orders of a shape with fewer micro-batches: by one repetition each of their middle.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

struct Growing {
  std::int32_t repeated = 0;  // micro-batches of a repetition; 0: nobody knows
  std::int32_t least = 0;     // micro-batches of the shortest of these orders, which has at least
                              // two repetitions
  // That of `microbatches`. The next longer one, and the shape's own, have `repeated` more, and are
  // the same with one repetition more in the middle of every row. Where a schedule takes the better
  // of several orders it is that of the shape's. REQUIRES: at least `least` and 2 * `repeated`,
  // fewer than the shape's by a multiple of `repeated`, which is not 0.
  std::function<Result<Schedule>(std::int32_t microbatches)> with;
};

}  // namespace rehearse
