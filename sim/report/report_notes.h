// SPDX-License-Identifier: Apache-2.0
// The notes of a prediction: the report key `notes`, and the last lines of its text.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// What the reader should hear of these numbers, a sentence each: the scenario's notes, the
// prediction's, remarks on its plan. Not among them: warnings, which commands print on stderr and
// the JSON report repeats.
std::vector<std::string> notes_of(const Prediction& prediction, const Scenario& scenario,
                                  const Cluster& cluster);

}  // namespace rehearse::sim
