// SPDX-License-Identifier: Apache-2.0
// A plan on one line, for people: the same in every report, answer and table.
#pragma once

#include <string>

#include "schedules/scenario/plan.h"

namespace rehearse {

// "tp 8 pp 8x3 cp 2 ep 4 dp 16, micro-batch 1, interleaved_1f1b, ZeRO-1 over 8, SP, full
// recompute": what is at its default is left out.
std::string plan_line(const Plan& plan);

}  // namespace rehearse
