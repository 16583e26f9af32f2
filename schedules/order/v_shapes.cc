// SPDX-License-Identifier: Apache-2.0
// V-Half and V-Min: two chunks per position in a V, for a half and a third of 1F1B's activation
// memory.
// Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv
// 2405.15362), section 3 and table 2.
//
// The blocks were found by trying all small strides at p = 2 ... 32; the best of a few is taken.
// Bubbles are those of the paper's code or smaller, peaks those of its tables
// (tests/schedules/order/closed_form_schedule_test.cc).
#include <algorithm>

#include "schedules/order/orders.h"
#include "schedules/order/v_block.h"
#include "schedules/planner/planner.h"

namespace rehearse::order {
namespace {

constexpr std::array kHalf{
    Block{{1, 2, 1, 2}, {2, 4, 1}, 6}, Block{{1, 2, 1, 1}, {1, 1, 2}, 12},
    Block{{1, 2, 1, 1}, {1, 4, 2}, 6}, Block{{1, 1, 2, 2}, {1, 4, 1}, 6},
    Block{{1, 2, 1, 2}, {1, 1, 1}, 0}, Block{{2, 2, 1, 1}, {2, 3, 1}, 12},
};
constexpr std::array kMin{
    Block{{1, 1, 1, 1}, {1, 1, 1}, 0},
    Block{{1, 1, 1, 1}, {1, 2, 1}, 6},
    Block{{1, 1, 1, 1}, {1, 3, 1}, 6},
};

// Blocks are compared on as many micro-batches as cost little: all of them in small pipelines.
std::int32_t trial_microbatches(std::int32_t p) {
  return std::max(2 * p + 1, 4000 / p);
}

// peak: stage-chunks alive at most; a position holds two, so the whole memory of 1F1B is 2p.
PlanTask task_of(const ScheduleShape& shape, std::int32_t peak) {
  return {.placement = v_placement(shape.positions),
          .microbatches = shape.microbatches,
          .limit_halves = 2 * std::int64_t{peak},
          .held_until_weight = true};
}
PlanTask half_task(const ScheduleShape& shape) {
  return task_of(shape, 2 * ((shape.positions + 2) / 2));
}
PlanTask min_task(const ScheduleShape& shape) {
  return task_of(shape, 2 * ((shape.positions + 4) / 3));
}

std::vector<GreedyRule> rules_of(std::span<const Block> blocks, std::int32_t p) {
  std::vector<GreedyRule> rules;
  for (const Block& block : blocks) rules.push_back(rule_of(block, p));
  return rules;
}

Schedule repeat(const PlanTask& task, std::span<const Block> blocks) {
  const std::int32_t p = task.placement.positions;
  return best_greedy(task, rules_of(blocks, p), Objective::Makespan, trial_microbatches(p));
}

}  // namespace

Result<Schedule> v_half(const ScheduleShape& shape) {
  return repeat(half_task(shape), kHalf);
}

Result<Schedule> v_min(const ScheduleShape& shape) {
  return repeat(min_task(shape), kMin);
}

Growing v_half_growing(const ScheduleShape& shape) {
  const PlanTask task = half_task(shape);
  const std::int32_t p = shape.positions;
  std::optional<GreedyRule> rule =
      rule_of_large(task, rules_of(kHalf, p), Objective::Makespan, trial_microbatches(p));
  if (!rule) return {};
  return growing_of(task, std::move(*rule));
}

}  // namespace rehearse::order
