// SPDX-License-Identifier: Apache-2.0
// Whether sharding saved memory: more of ZeRO should need less, and where a model is too small for
// that, the report says why.
#pragma once

#include <string>

#include "schedules/ir/schedule.h"
#include "schedules/model/model.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// One sentence where the fullest rank of `schedule` (the plan's own, lowered with its arena) needs
// more than it would with a lower zero_stage and that stage's default keys; empty: it does not.
// Lowers the plan again for every lower stage.
// `order_by`: what that schedule was ordered by (LowerOptions::price).
// REQUIRES: the runtime plans an arena, or the answer is empty.
std::string zero_order_note(const Transformer& model, const Plan& plan, const Schedule& schedule,
                            const PriceOps& order_by);

// The same of a prediction, of whatever runtime: what a framework allocates with a lower stage is
// replayed where its lower bound leaves the question open, and differences that blocks of the
// caching allocator make by chance are none.
std::string zero_order_note(const Transformer& model, const Prediction& prediction,
                            const Cluster& cluster, const PriceOps& order_by);

}  // namespace rehearse::sim
