// SPDX-License-Identifier: Apache-2.0
// Whether sharding saved memory: more of ZeRO should need less, and where a model is too small for
// that, the report says why.
#pragma once

#include <string>

#include "schedules/ir/schedule.h"
#include "schedules/model/model.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// One sentence where the fullest rank of `schedule` (the plan's own, lowered with its arena) needs
// more than it would with a lower zero_stage and that stage's default keys; empty: it does not, or
// the runtime is a framework's. Lowers the plan again for every lower stage.
// `order_by`: what that schedule was ordered by (LowerOptions::price).
std::string zero_order_note(const Transformer& model, const Plan& plan, const Schedule& schedule,
                            const PriceOps& order_by);

}  // namespace rehearse::sim
