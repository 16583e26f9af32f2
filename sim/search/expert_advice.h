// SPDX-License-Identifier: Apache-2.0
// What limits a plan with experts, and whether it pays that their tokens cross nodes, from the
// predictions of the best plan and of the fastest of the other kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/search/search.h"

namespace rehearse::sim {

// Whether some group of ranks that share the experts lies on more than one node. On NVL72 and its
// kin a node is the NVLink domain.
bool experts_cross_nodes(const Plan& plan, std::int32_t gpus_per_node);

// All but the plan of the other kind. What limits is the longer of the two waits, if it is at least
// 2 % of the step.
ExpertAdvice expert_advice(const FoundPlan& best, const Cluster& cluster);

std::string_view name_of(ExpertLimit limit);  // "none", "nic", "scale_up", "imbalance", "memory"
// Two sentences, a line each. REQUIRES: `advice` is of `best`.
std::string expert_advice_text(const ExpertAdvice& advice, const FoundPlan& best);

}  // namespace rehearse::sim
