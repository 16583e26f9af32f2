// SPDX-License-Identifier: Apache-2.0
// What a step takes if the network that nobody printed is slower than the cluster's file assumes.
#pragma once

#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// One sentence where the cluster's NICs are assumed (nics.assumed) and the plan's GPUs are on
// several nodes: the step at half and at a quarter of their rate. Empty elsewhere. Predicts the
// plan twice more.
std::string assumed_network_note(const Scenario& scenario, const Cluster& cluster,
                                 const Prediction& prediction);

}  // namespace rehearse::sim
