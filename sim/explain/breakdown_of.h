// SPDX-License-Identifier: Apache-2.0
// Breakdowns of what there is of a step: a prediction, a trace, a report's numbers.
#pragma once

#include "schedules/trace/trace.h"
#include "sim/explain/breakdown.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// Tells every cause: what kernels do, by their prices; idle time as the report has it, what is
// communicated by who communicates. REQUIRES: the prediction has times, and is of this model.
Breakdown breakdown_of(const Prediction& prediction, const Transformer& model);

// A trace of ours knows when its ops ran, of a prediction also how long they waited inside, and why
// its compute lane was idle (fill trace.idle before: attribute_idle). A profile knows the kernels
// of each device; the step is then the mean of those that it marks.
Breakdown breakdown_of(const Trace& trace);

// What a report says: idle time by cause, all ranks together [ns]. `inside`: what ops wait for
// while they run is known, and among the causes (a prediction); else it counts as busy (a run).
struct ReportedTimes {
  double step_s = 0;
  std::int64_t ranks = 1, idle_ns = 0;
  std::array<std::int64_t, kNumIdleCauses> causes{};
  bool inside = true;
};
Breakdown breakdown_of(const ReportedTimes& times);

}  // namespace rehearse::sim
