// SPDX-License-Identifier: Apache-2.0
// Orders of a plan's step with fewer micro-batches, of which the whole's is the same with more
// repetitions of its middle (docs/steady_state.md).
//
// Where the plan's schedule is known to grow so (schedules/order/growing.h) it is asked for fewer.
// Else repetitions are looked for in the whole order, whoever made it, and cut out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/order/growing.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// A micro-batch within its direction.
struct Numbered {
  bool up = false;
  std::int32_t number = 0;
};
Numbered numbered(const Placement& placement, Microbatch microbatch);

// What `x` does, `y` does `later` micro-batches earlier.
bool same_work(const Schedule& a, const Op& x, const Schedule& b, const Op& y,
               std::int32_t later = 0);

class ShorterOrders {
 public:
  // By the plan's schedule; repeated() is 0 where nobody knows how it grows.
  static ShorterOrders of_plan(const Plan& plan);
  // By what `whole`, a plan's order, repeats, of which nobody need know anything: whatever
  // made it. Keeps it, which must live as long. O(its ops).
  static ShorterOrders cut_from(const Schedule& whole);

  // Micro-batches of one repetition; 0: there are no shorter orders.
  std::int32_t repeated() const { return repeated_; }
  std::int32_t least() const { return least_; }  // micro-batches of the shortest that is known
  // None: so many repetitions are not there. REQUIRES: fewer micro-batches than the plan has by a
  // multiple of repeated(), which is not 0, and at least least().
  std::optional<Schedule> with(std::int32_t microbatches) const;

 private:
  // Of one row, as indices in its program: op i + period does what op i does one repetition later,
  // for all i in [begin, end).
  struct Phase {
    std::size_t begin = 0, end = 0, period = 0;
    std::int32_t repetitions() const {  // that may be cut out
      return static_cast<std::int32_t>((end + period - begin) / period);
    }
  };

  bool find_phases(std::int32_t later);
  Schedule without(std::int32_t repetitions) const;

  Growing growing_;  // one of both
  const Schedule* whole_ = nullptr;
  std::vector<Phase> phases_;  // per row of the whole
  std::int32_t repeated_ = 0, least_ = 0;
};

}  // namespace rehearse
