// SPDX-License-Identifier: Apache-2.0
// What an op is made of, out of a trace: its nodes with their predicted times, and its operands;
// and which values are alive at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

struct NodeLine {
  std::int32_t body = 0;  // index into Trace::bodies
  std::int32_t node = 0;  // index into Trace::nodes
  std::int32_t times = 1;
};
// In the order in which they run, a body that repeats once; empty: the trace does not know.
std::vector<NodeLine> nodes_of(const Trace& trace, OpId op);
// "6,144 x 4,608 x 3,072", with "24 x" before it where it is done 24 times at once; else empty.
std::string shape_text(const TraceNode& node);

std::span<const TraceOperand> operands_of(const Trace& trace, OpId op);

// Device values of a row that are alive at a time [ns], largest first. Empty where the trace has
// no values, or where they are not what its memory curve shows (a framework's allocator).
std::vector<std::int32_t> alive_at(const Trace& trace, RankClass row, std::int64_t time);

}  // namespace rehearse::viz
