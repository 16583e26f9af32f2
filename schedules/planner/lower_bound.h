// SPDX-License-Identifier: Apache-2.0
// What no order of a pipeline takes less than: how good a planned one can be at most.
//
// Every position runs all its ops, after the first micro-batch has come to it and before the last
// gradient has gone back; and no more micro-batches are under way at once than there is memory for,
// each from its forward on until the input gradient of the same stage.
#pragma once

#include "schedules/planner/planner_greedy.h"

namespace rehearse {

// [ticks] The largest of what is proved, for every stage s of a position r, with F, I, W (or B) per
// stage, x a transfer where two stages lie on different positions, S(a..b) a sum over stages:
//   down(s)  = S(F, 0..s-1) + its transfers         until the first forward of s can begin
//   up(s)    = S(I, 0..s-1) + its transfers + W(0)  from the end of I(s) until the step can end
//   around(s)= S(F + I, s..last) + transfers        from a forward of s to the end of its I
// (1) work and the way back: min down over the stages of r + m S(F + I, of r)
//     + max(m S(W, of r), min up)
// (2) memory: at most L micro-batches are between the begin of F(s) and the end of I(s), so the
//     i + L-th of them begins no earlier than the i-th ends:
//     down(s) + (1 + (m - 1) div L) around(s) + up(s)
// B in place of I, and no W, where backwards are whole; what an R may take out of them (recompute)
// counts as work and stands on no way. Holds for every order of the task, and for
// every schedule of its placement that needs no more memory.
std::int64_t makespan_bound(const PlanTask& task);

}  // namespace rehearse
