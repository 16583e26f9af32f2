#include "schedules/planner.h"

#include <algorithm>

namespace rehearse {
namespace {

// Most halves alive on any row.
std::int64_t most_alive(const Schedule& schedule, bool held_until_weight) {
  std::int64_t most = 0;
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    std::int64_t alive = 0;
    for (const Op& op : schedule.program(row)) {
      switch (op.kind) {
        case OpKind::Forward:
          alive += 2;
          break;
        case OpKind::Backward:
          alive -= 2;
          break;
        case OpKind::InputGradient:
          alive -= held_until_weight ? 0 : 1;
          break;
        case OpKind::WeightGradient:
          alive -= held_until_weight ? 2 : 1;
          break;
        default:
          break;
      }
      most = std::max(most, alive);
    }
  }
  return most;
}

}  // namespace

PlanValue value_of(const Schedule& schedule, const PlanTask& task, Objective objective) {
  if (schedule.ops.empty() || most_alive(schedule, task.held_until_weight) > task.limit_halves) {
    return {};
  }
  const Result<ComputeTiming> timing = time_compute(schedule, task.times);
  if (!timing) return {};
  std::int64_t longest = 0;
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::size_t first = schedule.first_op(row), end = schedule.first_op({row.value + 1});
    if (first == end) continue;
    longest =
        std::max(longest, timing.value().end[end - 1].value - timing.value().start[first].value);
  }
  const std::int64_t makespan = timing.value().makespan.value;
  return objective == Objective::Makespan ? PlanValue{makespan, longest}
                                          : PlanValue{longest, makespan};
}

Schedule best_greedy(const PlanTask& task, std::span<const GreedyRule> rules, Objective objective,
                     std::int32_t trial_microbatches) {
  PlanTask trial = task;
  if (trial_microbatches > 0) {
    trial.microbatches = std::min(task.microbatches, trial_microbatches);
  }
  PlanValue best;
  const GreedyRule* winner = nullptr;
  Schedule schedule;
  for (const GreedyRule& rule : rules) {
    Schedule order = greedy_order(trial, rule);
    const PlanValue value = value_of(order, trial, objective);
    if (winner != nullptr && value >= best) continue;
    if (order.ops.empty()) continue;
    best = value;
    winner = &rule;
    schedule = std::move(order);
  }
  if (winner == nullptr || trial.microbatches == task.microbatches) return schedule;
  return greedy_order(task, *winner);
}

}  // namespace rehearse
