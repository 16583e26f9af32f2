// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/planner.h"

#include <algorithm>

#include "schedules/planner/planner_exact.h"
#include "schedules/planner/planner_rules.h"
#include "schedules/planner/planner_shift.h"

namespace rehearse {
namespace {

// Effort, in numbers that do not depend on the machine: plans are the same everywhere.
constexpr std::int64_t kLargeOps = 50'000;  // beyond: the best of the trial alone
constexpr std::int32_t kTrialOps = 12'000;  // ops of a trial run, at least 2p micro-batches
constexpr std::int32_t kShiftOps = 12'000;  // larger orders are not improved
constexpr std::int32_t kShiftRounds = 8;

// Most halves alive on any row.
std::int64_t most_alive(const Schedule& schedule, bool held_until_weight) {
  std::int64_t most = 0;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
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

PlanTask trial_of(const PlanTask& task, std::int32_t trial_microbatches) {
  PlanTask trial = task;
  if (trial_microbatches > 0) {
    trial.microbatches = std::min(task.microbatches, trial_microbatches);
  }
  return trial;
}

struct Entry {
  PlanValue value;
  const GreedyRule* rule = nullptr;
  Schedule order;
};
// The rules that get to the end, the best first.
std::vector<Entry> tried(const PlanTask& trial, std::span<const GreedyRule> rules,
                         Objective objective) {
  std::vector<Entry> entries;
  for (const GreedyRule& rule : rules) {
    Entry entry{.rule = &rule, .order = greedy_order(trial, rule)};
    entry.value = value_of(entry.order, trial, objective);
    if (entry.value != PlanValue{}) entries.push_back(std::move(entry));
  }
  std::ranges::stable_sort(entries, {}, &Entry::value);
  return entries;
}

}  // namespace

PlanValue value_of(const Schedule& schedule, const ComputeTiming& timing, Objective objective) {
  std::int64_t longest = 0;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::size_t first = schedule.first_op(row), end = schedule.first_op({row.value + 1});
    if (first == end) continue;
    longest = std::max(longest, timing.end[end - 1].value - timing.start[first].value);
  }
  const std::int64_t makespan = timing.makespan.value;
  return objective == Objective::Makespan ? PlanValue{makespan, longest}
                                          : PlanValue{longest, makespan};
}

PlanValue value_of(const Schedule& schedule, const PlanTask& task, Objective objective) {
  if (schedule.ops.empty() || most_alive(schedule, task.held_until_weight) > task.limit_halves) {
    return {};
  }
  const Result<ComputeTiming> timing = time_compute(schedule, task.times);
  return timing ? value_of(schedule, timing.value(), objective) : PlanValue{};
}

std::int32_t planner_finalists(std::int64_t stages, std::int64_t microbatches) {
  return 3 * stages * microbatches > kLargeOps ? 1 : kPlannerFinalists;
}

double planner_steps(std::int32_t rules, std::int32_t finalists, std::int32_t positions,
                     std::int32_t chunks, std::int32_t microbatches) {
  const double stages = static_cast<double>(positions) * chunks, m = microbatches;
  const double trial = std::min(m, std::max(2.0 * positions + 1, kTrialOps / stages));
  return 3 * stages * (rules * trial + std::min(rules, finalists) * m);
}

Schedule best_greedy(const PlanTask& task, std::span<const GreedyRule> rules, Objective objective,
                     std::int32_t trial_microbatches) {
  const PlanTask trial = trial_of(task, trial_microbatches);
  std::vector<Entry> entries = tried(trial, rules, objective);
  if (entries.empty()) return {};
  if (trial.microbatches == task.microbatches) return std::move(entries.front().order);
  const auto finalists =
      static_cast<std::size_t>(planner_finalists(task.placement.stages(), task.microbatches));
  if (entries.size() > finalists) entries.resize(finalists);
  for (Entry& entry : entries) {
    entry.order = greedy_order(task, *entry.rule);
    entry.value = value_of(entry.order, task, objective);
  }
  Entry& best = *std::ranges::min_element(entries, {}, &Entry::value);
  return best.value == PlanValue{} ? Schedule{} : std::move(best.order);
}

std::optional<GreedyRule> rule_of_large(const PlanTask& task, std::span<const GreedyRule> rules,
                                        Objective objective, std::int32_t trial_microbatches) {
  const PlanTask trial = trial_of(task, trial_microbatches);
  const bool large = planner_finalists(task.placement.stages(), task.microbatches) == 1;
  if (!large || trial.microbatches == task.microbatches) return {};
  const std::vector<Entry> entries = tried(trial, rules, objective);
  if (entries.empty()) return {};
  return *entries.front().rule;
}

Schedule plan_order(const PlanTask& task, Objective objective) {
  const std::int32_t stages = task.placement.stages();
  const std::int32_t trial = std::max(2 * task.placement.positions, kTrialOps / (3 * stages));
  Schedule best = best_greedy(task, rules_for(task), objective, trial);
  if (best.num_ops() > 0 && best.num_ops() <= kShiftOps) {
    best = shift_ops(best, task, objective, kShiftRounds);
  }
  if (objective == Objective::Makespan && exact_applies(task)) {
    Schedule proved = exact_order(task, value_of(best, task, objective).first);
    if (!proved.ops.empty()) best = std::move(proved);
  }
  return best;
}

}  // namespace rehearse
