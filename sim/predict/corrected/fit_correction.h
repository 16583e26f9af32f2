// SPDX-License-Identifier: Apache-2.0
// A cluster corrected by a step that was measured on it: the shortest way to a number that one can
// bet on, whatever the framework.
//
// Every kind of work is as much slower as it was measured to be (StepWork); where a step's time is
// all that is known, everything is. What remains of the step's error goes to all kinds alike, so
// that the step itself is predicted as it was measured. What the step does not have (a plan without
// transfers) stays as described.
#pragma once

#include <optional>

#include "schedules/scenario/scenario.h"
#include "schedules/trace/step_work.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {

struct MeasuredStep {
  double step_s = 0;             // > 0
  std::optional<StepWork> work;  // of the one step
};

struct CorrectionFit {
  Correction correction;             // with the cluster's own
  double before_s = 0, after_s = 0;  // predicted
  std::string schedule_hash;         // of the schedule that was predicted
};

// Errors: those of a prediction; a factor beyond a hundred.
Result<CorrectionFit> fit_correction(const Scenario& scenario, const Cluster& cluster,
                                     const MeasuredStep& measured);

}  // namespace rehearse::sim
