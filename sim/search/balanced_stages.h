// SPDX-License-Identifier: Apache-2.0
// A pipeline's layers dealt out by their priced time, for models whose layers differ: as many
// layers on every stage are then not as much work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// How many of the layers, in their order, lie on each of `stages`: the busiest stage has as little
// as can be, and of those ways the one with the least sum of squares. The first stage has `first`
// beside its layers, the last one `last`; these two may have no layer. Empty: there are too few.
std::vector<std::int32_t> deal_layers(std::span<const double> layers, double first, double last,
                                      std::int32_t stages);

// The plan's stage_layers by what forward and backward of its segments take on the cluster; empty:
// its layers are alike, or its order was planned for other times.
std::vector<std::int32_t> balanced_stage_layers(const Transformer& model, const Plan& plan,
                                                const Cluster& cluster,
                                                const HardwareTables& tables);

}  // namespace rehearse::sim
