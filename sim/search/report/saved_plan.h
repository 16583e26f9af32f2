// SPDX-License-Identifier: Apache-2.0
// A found plan as a scenario file that `simulate`, `run` and `view` take.
#pragma once

#include <string>

#include "sim/search/search.h"

namespace rehearse::sim {

// Left out are numbers that another key makes meaningless, the keys of experts where they do
// nothing, and what the plan's runtime profile says alike; flags without effect are false. Read
// back, it is the same plan.
std::string scenario_text(const Space& space, const FoundPlan& found, const std::string& name);

}  // namespace rehearse::sim
