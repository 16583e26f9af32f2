// SPDX-License-Identifier: Apache-2.0
// Searched orders: the best of a portfolio of greedy rules, for given durations and memory.
#pragma once

#include <optional>
#include <span>

#include "schedules/planner/planner_greedy.h"
#include "schedules/timing/metrics.h"

namespace rehearse {

enum class Objective : std::uint8_t {
  Makespan,  // then the longest span of a position
  Span,      // the zero-bubble papers' measure; then the makespan
};

// What an order is worth; the smaller is the better, compared in the order of the objective.
struct PlanValue {
  std::int64_t first = INT64_MAX, second = INT64_MAX;
  auto operator<=>(const PlanValue&) const = default;
};
PlanValue value_of(const Schedule& schedule, const ComputeTiming& timing, Objective objective);
// REQUIRES: all ops of the task's placement and micro-batches. Worst value where the order waits
// for itself or needs more memory than the task has.
PlanValue value_of(const Schedule& schedule, const PlanTask& task, Objective objective);

// The best order of the rules; one without ops where none of them gets to the end. Rules are tried
// on at most `trial_microbatches` micro-batches and the best few then run on all (0: all of them).
Schedule best_greedy(const PlanTask& task, std::span<const GreedyRule> rules, Objective objective,
                     std::int32_t trial_microbatches = 0);

// Of a task whose step is large, the rule that best_greedy takes: by its trial alone. None: the
// step is not large, or no rule gets to the end.
std::optional<GreedyRule> rule_of_large(const PlanTask& task, std::span<const GreedyRule> rules,
                                        Objective objective, std::int32_t trial_microbatches);

// Rules of a trial that best_greedy runs on all micro-batches: so many, of a large step one.
inline constexpr std::int32_t kPlannerFinalists = 4;
std::int32_t planner_finalists(std::int64_t stages, std::int64_t microbatches);
// Ops that the planner places: by every rule on a step of about twice the positions, by the
// finalists on all. Up to a microsecond each: beyond kMostPlannerSteps nobody waits for it.
inline constexpr double kMostPlannerSteps = 1 << 24;
double planner_steps(std::int32_t rules, std::int32_t finalists, std::int32_t positions,
                     std::int32_t chunks, std::int32_t microbatches);

// The best order that the planner knows for the task: every rule of planner_rules.h, the best of
// them improved by shifting (planner_shift.h), and for small pipelines the proved optimum of the
// makespan (planner_exact.h). One without ops where the limit is below what one micro-batch needs.
Schedule plan_order(const PlanTask& task, Objective objective);

}  // namespace rehearse
