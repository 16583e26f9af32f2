// SPDX-License-Identifier: Apache-2.0
// A prediction as a trace: what viewers, exporters and `compare` read.
#pragma once

#include "schedules/trace/trace.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// With idle spans and causes, cost levels, memory over time, link load (where recorded).
Trace predicted_trace(const Prediction& prediction, const Scenario& scenario,
                      const Cluster& cluster);

}  // namespace rehearse::sim
