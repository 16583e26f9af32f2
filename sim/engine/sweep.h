// SPDX-License-Identifier: Apache-2.0
// The static engine: one pass over the nodes in topological order, for costs that do not depend on
// what runs beside. No queue, no sharing, no slowdown, no jitter; what search uses.
//
// Where nothing is shared or slowed its integers equal the event engine's.
#pragma once

#include <vector>

#include "schedules/base/result.h"
#include "sim/cost/cost.h"
#include "sim/engine/program.h"
#include "sim/engine/timeline.h"

namespace rehearse::sim {

// Costs laid out by node. Bind once; where only times of the table change, rebind() again.
struct NodeTimes {
  std::vector<Nanoseconds> time;    // per node: the longest of its members' times alone
  std::vector<Nanoseconds> issued;  // per node: issue_times()
};
// REQUIRES: costs.of_op has one entry per op of the program.
NodeTimes bind(const Program& program, const CostTable& costs);
void rebind(const Program& program, const CostTable& costs, NodeTimes& times);
// Per node, when the hosts of all its members have issued it: one host thread per row issues the
// row's program in order and never waits. Empty: no op takes host time.
std::vector<Nanoseconds> issue_times(const Program& program, const CostTable& costs);

// Start and end by node, into arrays that the caller keeps: nothing is allocated.
// REQUIRES: program.deadlock is empty; start and end have num_nodes entries. Returns the last end.
Nanoseconds sweep(const Program& program, const NodeTimes& times, std::vector<Nanoseconds>& start,
                  std::vector<Nanoseconds>& end);

// From columns by node to columns by op.
Timeline by_op(const Program& program, const std::vector<Nanoseconds>& start,
               const std::vector<Nanoseconds>& end);

// The same by op. Error: the deadlock.
Result<Timeline> sweep(const Program& program, const CostTable& costs);

}  // namespace rehearse::sim
