// SPDX-License-Identifier: Apache-2.0
// Improves an order by moving ops into gaps: all as late as they can, then all as early as they
// can.
//
// Known in project scheduling as justification (Valls, Ballestin, Quintanilla, EJOR 2005). No pass
// makes the makespan longer: an op moves only into time that its position idles in, between what it
// waits for and what waits for it, and only where the memory limit allows. Order changes follow.
#pragma once

#include "schedules/planner/planner.h"

namespace rehearse {

// The best order seen in at most `rounds` rounds, `schedule` itself included.
// REQUIRES: a complete order of the task within its limit, whose ops keep their micro-batches in
// order on each stage.
Schedule shift_ops(const Schedule& schedule, const PlanTask& task, Objective objective,
                   std::int32_t rounds);

}  // namespace rehearse
