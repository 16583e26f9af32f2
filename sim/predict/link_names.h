// SPDX-License-Identifier: Apache-2.0
// What people call the links of a prediction: kind and direction, whose traffic they carry, and on
// which nodes those ranks are.
#pragma once

#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// Per resource of the pricing: "nic out, position 3, nodes 48-63". Without traffic: "nic out".
std::vector<std::string> link_names(const Prediction& prediction, const Cluster& cluster);

}  // namespace rehearse::sim
