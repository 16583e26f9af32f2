// SPDX-License-Identifier: Apache-2.0
// The shortest order of a small pipeline, proved: no order within the memory limit is shorter.
//
// Micro-batches are alike, so each stage runs them in order, and what has been done is a count of
// F, I and W per stage. Orders with equal counts differ only in their times: of two, the one that
// is nowhere later is enough. So the states are (counts, times), layer by layer, without those that
// another state dominates or that cannot beat the bound.
#pragma once

#include "schedules/planner/planner.h"

namespace rehearse {

// One stage per position, at most 3 of them, at most 4 micro-batches, backwards split.
bool exact_applies(const PlanTask& task);

// REQUIRES: exact_applies(task). An order with the smallest makespan if that is below `bound`, else
// a schedule without ops: then nothing is shorter than the bound.
Schedule exact_order(const PlanTask& task, std::int64_t bound);

}  // namespace rehearse
