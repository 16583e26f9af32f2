// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/order_bound.h"

#include <algorithm>
#include <cmath>

#include "schedules/planner/lower_bound.h"
#include "schedules/transfers/evaluation.h"

namespace rehearse {

std::optional<OrderBound> bound_of(const Schedule& order, const ScheduleShape& shape) {
  if (!order.placement.up.empty() || order.slices > 1 || !order.children.empty()) return {};
  const std::int32_t chunks = visited_chunks(order);
  ComputeTimes times = divide(shape.times, chunks);
  if (static_cast<std::int32_t>(shape.stage_times.size()) == order.placement.stages()) {
    times.stages = shape.stage_times;
  }
  // Transfers that cost nothing could only add the waiting behind one another.
  std::int64_t makespan = 0;
  if (times.transfer.value > 0) {
    const Result<Evaluation> timed = evaluate(order, times);
    if (!timed || !timed.value().deadlock_free) return {};
    makespan = timed.value().timing.makespan.value;
  } else {
    const Result<ComputeTiming> timed = time_compute(order, times);
    if (!timed) return {};
    makespan = timed.value().makespan.value;
  }
  PlanTask task{.placement = order.placement, .microbatches = order.microbatches, .times = times};
  // Whole backwards may take less than both halves: then an order may have them.
  for (StageTimes& stage : task.times.stages) {
    stage.input_gradient = std::min(stage.input_gradient, stage.backward);
    stage.weight_gradient = std::min(stage.weight_gradient, stage.backward - stage.input_gradient);
    stage.recompute = std::min(stage.recompute, stage.input_gradient);
  }
  const double alive = shape.memory_limit * chunks * std::min(shape.positions, order.microbatches);
  task.limit_halves = shape.memory_limit > 0
                          ? static_cast<std::int64_t>(std::floor(2 * alive + 1e-9))
                          : 2 * std::int64_t{order.microbatches} * order.placement.stages();
  return OrderBound{makespan_bound(task), makespan};
}

}  // namespace rehearse
