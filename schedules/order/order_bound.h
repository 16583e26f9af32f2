// SPDX-License-Identifier: Apache-2.0
// How far an order is from what is proved: that no order takes less (schedules/planner/lower_bound.h).
#pragma once

#include <optional>

#include "schedules/order/registry.h"

namespace rehearse {

struct OrderBound {
  // [ticks] What no order of this placement within the shape's memory takes less than, and what
  // this one takes, in the times of the shape.
  std::int64_t least = 0, makespan = 0;
  double above() const {
    return static_cast<double>(makespan) / static_cast<double>(least) - 1;
  }
};
// None: its micro-batches go both ways, in slices or in pairs, or it waits for itself.
std::optional<OrderBound> bound_of(const Schedule& order, const ScheduleShape& shape);

}  // namespace rehearse
