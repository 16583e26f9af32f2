// SPDX-License-Identifier: Apache-2.0
// What the ops of a trace are made of: the values that they touch and the nodes that they run; and
// the ranks that its rows stand for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/trace/trace.h"

namespace rehearse {

// What each node of a body costs; empty: nobody knows.
struct NodeTime {
  Nanoseconds time{};             // alone
  std::uint8_t cost_level = 255;  // sim::CostLevel as a number
};
using NodeTimes = std::function<std::vector<NodeTime>(const Body&)>;

// Rows with their ranks, by the plan's mesh; `capacity_bytes` of each device, 0: not known.
std::vector<TraceRow> trace_rows(const Schedule& schedule, const Plan& plan,
                                 std::int64_t capacity_bytes);
// Fills values and operands. REQUIRES: `trace` is of `schedule`.
void add_operands(Trace& trace, const Schedule& schedule);
// Fills nodes, bodies and runs of every class of compute ops, each distinct body once.
// REQUIRES: `trace` is of `schedule`, which was lowered from `layout`.
void add_nodes(Trace& trace, const Schedule& schedule, const Layout& layout,
               const NodeTimes& times = {});

// "sI2.0", "F.L2#1": as in a listing.
std::string value_name(const Trace& trace, std::int32_t value);

}  // namespace rehearse
