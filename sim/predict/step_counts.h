// SPDX-License-Identifier: Apache-2.0
// What a timed step did: its FLOPs, and what every group sent.
#pragma once

#include "sim/predict/predict.h"

namespace rehearse::sim {

// Those of the model and those of recomputation, as `convention` counts them.
void count_flops(Prediction& p, const Layout& layout, FlopsConvention convention);
// One row for each group and kind. REQUIRES: priced, with its timeline.
void add_communication(Prediction& p);

}  // namespace rehearse::sim
