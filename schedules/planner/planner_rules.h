// SPDX-License-Identifier: Apache-2.0
// The rules that a planner tries: few, chosen so that together they come close to all (found by
// covering 144 settings with p 2 ... 32 and memory from half to three times that of 1F1B: what the
// set loses against 320 combinations of the same parameters is 0.005 % on average, 0.3 % at most).
#pragma once

#include <vector>

#include "schedules/planner/planner_greedy.h"

namespace rehearse {

std::vector<GreedyRule> rules_for(const PlanTask& task);

}  // namespace rehearse
