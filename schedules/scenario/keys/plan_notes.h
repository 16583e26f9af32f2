// SPDX-License-Identifier: Apache-2.0
// Keys of a plan that another key makes meaningless: nothing is wrong, and nothing happens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

struct IdleKey {
  std::string key;  // below "plan.": "prefetch", "overlap.gradient_reduce"
  std::string why;
};

// The keys that `given` (the plan as its file has it) asks for and `plan` (the same, read) gives no
// effect. Keys that are left out, null, or ask for nothing are not named. REQUIRES: `given` was
// read into `plan` without an error.
std::vector<IdleKey> keys_without_effect(const JsonValue& given, const Plan& plan,
                                         std::span<const PlanRow> rows = plan_rows());

}  // namespace rehearse
