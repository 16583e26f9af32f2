// SPDX-License-Identifier: Apache-2.0
// Which keys of a plan may be changed so that it fits in memory, and how many a plan differs in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/scenario/keys/plan_rows.h"
#include "sim/memory/memory.h"
#include "sim/search/space/space.h"

namespace rehearse::sim {

// The scenario's space with these keys open, each with the plan's value and those that need less
// memory; all else as the scenario says. REQUIRES: `plan` is the scenario's, its micro-batch and
// order chosen.
Space with_open_keys(Space space, const Plan& plan);

// How many keys must be changed to make `to` of `from`. Not counted is what follows from another
// key: the number of replicas, and schedule and chunks where a pipeline begins or ends.
std::int32_t changed_keys(const Plan& from, const Plan& to);
// The same of a family of plans, whose micro-batch and recomputation are still open.
std::int32_t changed_family_keys(const Plan& from, const Plan& family);

// All that differs, in the words of a file. The runtime, which stays, is among it where `to` has
// another one by default and the scenario says none.
std::vector<PlanChange> changes_of(const Plan& from, const Plan& to, bool runtime_said,
                                   std::span<const PlanRow> rows = plan_rows());

}  // namespace rehearse::sim
