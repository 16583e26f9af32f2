// SPDX-License-Identifier: Apache-2.0
// The compute order (L0) that a plan asks for, and what a planned schedule has to choose among.
#pragma once

#include <optional>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"
#include "schedules/model/model.h"
#include "schedules/order/growing.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// By name or from a file ("file:PATH", which fills in what the plan left to it). The one place
// where an order is made of a plan: simulate, run, check and search call it. Planned orders are
// planned for what the plan holds of priced times (Plan::planned_stages), else for
// estimate_by_flops, which depend on no machine.
// Errors: one line.
Result<Schedule> order_of(const Transformer& model, Plan& plan);

// The plan's shorter orders (schedules/order/growing.h); none: its order is from a file, searched
// for, or does not grow by repeating its middle.
Growing growing_of(const Plan& plan);

// Whether the plan's schedule has several orders to choose among and none is chosen yet, or places
// recomputation by times that nobody has priced yet: who can predict (sim/predict/predict.h) takes
// the best of order_candidates; without a prediction order_of gives the planner's own, and places
// by FLOPs.
bool leaves_order_open(const Plan& plan);

// The plans that differ from `plan` only by the order taken for it (Plan::order, and the keys that
// follow from it where the user left them out: virtual_stages, stage_layers, sequence_slices,
// memory_limit). Of two that come out equal the first is meant to be taken.
// Where the runtime performs recomputation apart (Plan::may_place_recompute) or the plan asks for
// it (recompute_in_advance), behind these each of them again with recomputations in its bubbles, as
// far as memory_limit has room for what they make.
//   auto          every named order that is legal for the plan and keeps to its memory_limit, where
//                 one is given; the planner's for the limits below, else for 1F1B's activations,
//                 twice and four times as many
//   zb_1p, zb_2p  the planner's for the limits below
// The limits below: steps of a quarter of 1F1B's peak, from it (for a memory_limit under 1: from
// the least) up to memory_limit, which is rounded down to a step; 3 and 4 where it is larger. Of
// two limits from 1 on the larger is never slower: it has the orders of the other to choose from.
// The work is bounded: planned orders of pipelines of more than 2^20 ops are left out of `auto`.
std::vector<Plan> order_candidates(const Transformer& model, const Plan& plan);

// By how much the plan's order, planned for priced times, takes longer than what no order of its
// placement and memory takes less than, in these times; none: another order, or nothing is proved.
std::optional<double> above_bound(const Plan& plan, const Schedule& order);

}  // namespace rehearse
