// SPDX-License-Identifier: Apache-2.0
// The building block of a schedule in a V: where the ops of one micro-batch stand in time, to be
// repeated every kInterval units (F = I = W = 1, two chunks per position: 6 units of work).
// Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (arXiv
// 2405.15362): the smaller the steps from position to position, the shorter an activation lives.
#pragma once

#include <array>

#include "schedules/order/growing.h"
#include "schedules/planner/planner_greedy.h"

namespace rehearse::order {

inline constexpr std::int64_t kInterval = 6;

// Units from a stage to the next: forward down and up the V, backward down and up; and from the
// last op of one of these four legs to the first of the next.
struct Block {
  std::array<std::int32_t, 4> stride;
  std::array<std::int32_t, 3> turn;
  std::int64_t ahead;  // how far a forward may overtake the block, in units
};

// The block as priorities of a greedy pass, which also fills and drains the pipeline.
GreedyRule rule_of(const Block& block, std::int32_t positions);

// The orders of the rule with fewer micro-batches than the task.
Growing growing_of(PlanTask task, GreedyRule rule);

}  // namespace rehearse::order
