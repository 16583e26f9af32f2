// SPDX-License-Identifier: Apache-2.0
// One plan, predicted: nothing of it is left open any more.
#pragma once

#include "sim/predict/predict.h"

namespace rehearse::sim {

// REQUIRES: options.tables. Errors as predict() has them.
Result<Prediction> predict_plan(const Scenario& scenario, Plan plan, const Cluster& machine,
                                const PredictOptions& options);

}  // namespace rehearse::sim
