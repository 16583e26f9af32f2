// SPDX-License-Identifier: Apache-2.0
// What the stages of a plan take on a cluster, for a planned schedule (zb_1p, zb_2p, auto): as the
// Zero Bubble papers profile F, I, W and a transfer before they plan (Qi et al., arXiv 2401.10241,
// section 3).
#pragma once

#include "schedules/scenario/layout.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// Fills planned_stages (one micro-batch of each stage, as price() prices its bodies) and
// planned_transfer (between the first two positions). REQUIRES: stage_layers says every stage.
// Errors: those of the compute model, in one line.
Result<> price_planned_times(const Transformer& model, const Cluster& cluster,
                             const HardwareTables& tables, Plan& plan);

}  // namespace rehearse::sim
