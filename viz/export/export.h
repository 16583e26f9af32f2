// SPDX-License-Identifier: Apache-2.0
// Traces for other tools. Each writes one file by atomic rename; equal traces give equal bytes.
#pragma once

#include <string>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// Chrome's JSON ("Trace Event Format", read by chrome://tracing, Perfetto, speedscope): a process
// per row, a thread per lane, bubbles as a thread of their own, memory and links as counters,
// transfers as flows. Times are microseconds with three decimals, so nanoseconds survive; `dur`
// ends at least 1 ns before the next event of the thread, as readers add doubles. What that loses,
// and whatever else import needs to give the trace back, stands in `args` and in "rehearse".
// `inside`, of each: the collectives inside compute ops too (schedules/trace/collectives_inside.h),
// on a lane of their own behind the row's; importers pass over it.
Result<> export_chrome(const Trace& trace, const std::string& path, bool inside = false);

// Perfetto's protobuf (field numbers: google/perfetto protos/perfetto/trace/perfetto_trace.proto).
Result<> export_perfetto(const Trace& trace, const std::string& path, bool inside = false);

// One line per op: id, name, row, lane, kind, stage, micro-batch, start_ns, end_ns, ...
// A collective inside an op follows it, with the op's id and the lane "inside".
Result<> export_csv(const Trace& trace, const std::string& path, bool inside = false);

}  // namespace rehearse::viz
