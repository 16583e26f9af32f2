// SPDX-License-Identifier: Apache-2.0
// Whether hiding the gradients' reduction was worth it: overlap should never be slower than none,
// and where it is, the report says why.
#pragma once

#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// One sentence where the step of `prediction` (of this scenario, on this cluster) takes longer than
// it would with overlap.gradient_reduce false and that key's default bucket_bytes; empty: it does
// not, or nothing overlaps. Predicts the plan once more.
std::string overlap_note(const Scenario& scenario, const Cluster& cluster,
                         const Prediction& prediction);

}  // namespace rehearse::sim
