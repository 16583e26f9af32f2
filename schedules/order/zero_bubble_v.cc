// SPDX-License-Identifier: Apache-2.0
// ZB-V: zero bubble with two chunks per position in a V, in the memory of 1F1B.
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 6;
// the order for m >= 2p - 1 is that of torch.distributed.pipelining ScheduleZBVZeroBubble; below,
// where that one idles, it is searched.
#include <algorithm>

#include "schedules/order/orders.h"
#include "schedules/planner/planner.h"
#include "schedules/planner/planner_rules.h"
#include "schedules/planner/planner_shift.h"

namespace rehearse::order {
namespace {

constexpr std::int32_t kShiftRoundsV = 8;

class Leg {  // one chunk of a position: its next F, I, W
 public:
  Leg(Schedule& schedule, Stage stage, std::int32_t microbatches)
      : schedule_(schedule), stage_(stage), microbatches_(microbatches) {}
  void f() { add(OpKind::Forward, forwards_); }
  void i() { add(OpKind::InputGradient, inputs_); }
  void w() { add(OpKind::WeightGradient, weights_); }
  std::int32_t forwards() const { return forwards_; }
  bool weights_left() const { return weights_ < inputs_; }

 private:
  // Micro-batches beyond the last keep their place in the pattern and are left out.
  void add(OpKind kind, std::int32_t& done) {
    if (done < microbatches_) schedule_.ops.push_back(compute_op(kind, stage_, {done}));
    ++done;
  }
  Schedule& schedule_;
  Stage stage_;
  std::int32_t microbatches_;
  std::int32_t forwards_ = 0, inputs_ = 0, weights_ = 0;
};

// torch's order: right for m >= 2p - 1. With fewer micro-batches it leaves ops out and idles.
Schedule steady_order(std::int32_t p, std::int32_t m) {
  const std::int32_t n = std::max(2 * p - 1, m);
  Schedule schedule;
  schedule.placement = v_placement(p);
  schedule.microbatches = m;
  for (std::int32_t r = 0; r < p; ++r) {
    Leg down(schedule, {r}, m), up(schedule, {2 * p - 1 - r}, m);
    for (std::int32_t k = 0; k < 2 * (p - r) - 1; ++k) down.f();
    for (std::int32_t k = 0; k < r; ++k) up.f(), down.f();
    for (std::int32_t k = 0; k < p - r; ++k) up.f(), up.i(), up.w();
    while (up.forwards() < down.forwards() || down.forwards() < n) {
      if (down.forwards() < n) down.f();
      down.i(), down.w(), up.f(), up.i(), up.w();
    }
    for (std::int32_t k = 0; k < r; ++k) down.i(), up.i();
    for (std::int32_t k = 0; k < p - r; ++k) down.i(), down.w();
    while (up.weights_left()) up.w();
    while (down.weights_left()) down.w();
    schedule.end_row();
  }
  return schedule;
}

}  // namespace

Result<Schedule> zero_bubble_v(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  Schedule best = steady_order(p, m);
  if (m >= 2 * p - 1) return best;
  // F = I = W, activations held until W in the 2p chunks of 1F1B: what the schedule is made for.
  const PlanTask task{.placement = v_placement(p),
                      .microbatches = m,
                      .limit_halves = 4 * std::int64_t{p},
                      .held_until_weight = true};
  const auto consider = [&](const Schedule& order) {
    if (order.ops.empty()) return;
    Schedule shifted = shift_ops(order, task, Objective::Makespan, kShiftRoundsV);
    if (value_of(shifted, task, Objective::Makespan) < value_of(best, task, Objective::Makespan)) {
      best = std::move(shifted);
    }
  };
  consider(best);
  for (const GreedyRule& rule : rules_for(task)) consider(greedy_order(task, rule));
  return best;
}

}  // namespace rehearse::order
