// SPDX-License-Identifier: Apache-2.0
// What a predicted step rests on, and how far the truth may lie from it.
#pragma once

#include <string>

#include "sim/band/error_table.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// What features call a GPU, "hopper 90" (of another vendor's, whose GPUs have no compute capability,
// "cdna3"), and the type of its products, "16 bit".
std::string generation_text(const Gpu& gpu);
std::string precision_name(ComputeType type);
// In what the step is like measured ones. REQUIRES: priced, with its timeline.
StepFeatures features_of(const Prediction& p, const Cluster& cluster);

// Fills confidence, band, error_band and scatter. `without_source`: see BandQuery.
void add_confidence(Prediction& p, const Scenario& scenario, const Cluster& cluster,
                    const ErrorTable& errors, const std::string& without_source);

}  // namespace rehearse::sim
