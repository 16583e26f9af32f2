// SPDX-License-Identifier: Apache-2.0
// Orders that are planned for given durations and memory: ZB-1p, ZB-2p, and the best of all.
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 3
// and table 4: ZB-1p and ZB-2p are found by search within 1x and 2x the activation memory of 1F1B.
// I frees half of an activation, W the other half, as there.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "schedules/order/orders.h"
#include "schedules/planner/planner.h"
#include "schedules/transfers/evaluation.h"

namespace rehearse::order {
namespace {

// 1F1B keeps min(p, m) micro-batches on position 0.
double limit_of(const ScheduleShape& shape) {
  return shape.memory_limit * std::min(shape.positions, shape.microbatches);
}
std::int64_t halves(double activations) {
  return static_cast<std::int64_t>(std::floor(2 * activations + 1e-9));
}

ComputeTimes times_of(const ScheduleShape& shape, std::int32_t stages, std::int32_t chunks,
                      std::int32_t slices = 1) {
  ComputeTimes times = divide(shape.times, chunks, slices);
  if (static_cast<std::int32_t>(shape.stage_times.size()) == stages) {
    times.stages = shape.stage_times;
  }
  return times;
}

Error needs_more(const ScheduleShape& shape) {
  return {.message = "memory_limit: " + std::to_string(limit_of(shape)) +
                     " activations per position are not enough for any order that is known",
          .infeasible = true};
}

// The best order seen so far, of any placement. Times are comparable: all are in the ticks of the
// shape's position times.
class Best {
 public:
  Best(const ScheduleShape& shape, Objective objective) : shape_(shape), objective_(objective) {}

  void consider(Schedule schedule) {
    if (schedule.ops.empty()) return;
    const std::int32_t chunks = visited_chunks(schedule);
    const ComputeTimes times =
        times_of(shape_, schedule.placement.stages(), chunks, schedule.slices);
    // With transfers that take time, their order counts: the figures are those of the command.
    ComputeTiming timing;
    if (times.transfer.value > 0) {
      Result<Evaluation> evaluation = evaluate(schedule, times);
      if (!evaluation || !evaluation.value().deadlock_free) return;
      timing = std::move(evaluation).value().timing;
    } else {
      Result<ComputeTiming> alone = time_compute(schedule, times);
      if (!alone) return;
      timing = std::move(alone).value();
    }
    const ScheduleMetrics metrics = measure(schedule, timing);
    if (metrics.largest_weighted_peak() > limit_of(shape_) * chunks + 1e-9) return;
    // The one of two equally good orders that stays within the limit with I freeing nothing.
    const bool beyond = metrics.largest_peak() > limit_of(shape_) * chunks + 1e-9;
    const PlanValue value = value_of(schedule, timing, objective_);
    if (std::tuple(value.first, beyond, value.second) >=
        std::tuple(value_.first, beyond_, value_.second)) {
      return;
    }
    value_ = value;
    beyond_ = beyond;
    schedule_ = std::move(schedule);
  }
  void consider(const Result<Schedule>& made) {
    if (made) consider(made.value());
  }

  Result<Schedule> take() {
    if (schedule_.ops.empty()) return needs_more(shape_);
    return std::move(schedule_);
  }

 private:
  const ScheduleShape& shape_;
  Objective objective_;
  PlanValue value_;
  bool beyond_ = true;
  Schedule schedule_;
};

PlanTask task_of(const ScheduleShape& shape, Placement placement, std::int32_t chunks) {
  PlanTask task{.placement = std::move(placement), .microbatches = shape.microbatches};
  task.times = times_of(shape, task.placement.stages(), chunks);
  task.limit_halves = halves(limit_of(shape) * chunks);
  return task;
}

Result<Schedule> zero_bubble(const ScheduleShape& shape) {
  Best best(shape, Objective::Span);
  best.consider(zero_bubble_h1(shape));
  best.consider(zero_bubble_h2(shape));
  best.consider(plan_order(task_of(shape, loop_placement(shape.positions, 1), 1), Objective::Span));
  return best.take();
}

// Whether a named schedule may compete: it must fit the stages that the caller has. With the chunks
// left out every placement may; two replicas of the model and slices only where asked for.
bool competes(const ScheduleInfo& info, const ScheduleShape& shape) {
  if (info.planned || info.one_stage) return false;
  if (info.sliced) return shape.slices > 1;
  switch (info.chunks) {
    case ChunkRule::One:
      return shape.chunks <= 1;
    case ChunkRule::Many:
      return shape.chunks != 1;
    case ChunkRule::V:
      return shape.chunks == 0 || shape.chunks == 2;
    case ChunkRule::Waves:
      return shape.chunks % 2 == 0;
    case ChunkRule::Bidirectional:
    case ChunkRule::BidirectionalV:
      return shape.chunks == 0;
    case ChunkRule::Any:
      return false;
  }
  return false;
}

}  // namespace

Result<Schedule> zero_bubble_1p(const ScheduleShape& shape) {
  return zero_bubble(shape);
}
Result<Schedule> zero_bubble_2p(const ScheduleShape& shape) {
  return zero_bubble(shape);
}

Result<Schedule> automatic(const ScheduleShape& shape) {
  Best best(shape, Objective::Makespan);
  for (const ScheduleInfo& info : schedule_table()) {
    if (!competes(info, shape)) continue;
    ScheduleShape asked = shape;
    asked.memory_limit = 0;
    if (info.chunks == ChunkRule::One || info.chunks == ChunkRule::Bidirectional) asked.chunks = 0;
    best.consider(generate(info.name, asked));
  }
  const std::int32_t p = shape.positions;
  const auto plan = [&](const Placement& placement, std::int32_t chunks) {
    // Where planning would take minutes the named orders are all there are.
    constexpr std::int32_t kRules = 24;  // planner_rules.h
    const double steps =                 // as if no step were large
        planner_steps(kRules, kPlannerFinalists, p, chunks, shape.microbatches);
    if (steps > kMostPlannerSteps / 4) return;
    PlanTask task = task_of(shape, placement, chunks);
    best.consider(plan_order(task, Objective::Makespan));
    // The tie is worth a second plan where plans cost little.
    constexpr std::int64_t kOps = 20'000;
    if (3 * std::int64_t{placement.stages()} * shape.microbatches > kOps) return;
    task.held_until_weight = true;
    best.consider(plan_order(task, Objective::Makespan));
  };
  if (shape.chunks <= 1) plan(loop_placement(p, 1), 1);
  if (shape.chunks != 1) {
    const std::int32_t chunks = shape.chunks == 0 ? 2 : shape.chunks;
    if (chunks == 2) plan(v_placement(p), 2);
    plan(loop_placement(p, chunks), chunks);
  }
  return best.take();
}

}  // namespace rehearse::order
