// SPDX-License-Identifier: Apache-2.0
// What a plan brings with it that its numbers alone do not say: lines for the notes of a report.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {

std::vector<std::string> plan_remarks(const Prediction& prediction, const Scenario& scenario,
                                      const Cluster& cluster);

// Which micro-batch was taken where the plan leaves it open, among which, and what the next best
// costs: "plan.micro_batch: 4, the fastest that fits of 1, 2, 4: ...". "": the plan says it.
std::string micro_batch_note(const Prediction& chosen, const std::string& cluster_id);

}  // namespace rehearse::sim
