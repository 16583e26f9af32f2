// SPDX-License-Identifier: Apache-2.0
// Values of a plan's keys that need no more memory than the plan's own, as JSON, the own first.
#pragma once

#include <string>
#include <vector>

#include "schedules/scenario/plan.h"

namespace rehearse::smaller_values {

using Values = std::vector<std::string>;

Values sequence_splits(const Plan& plan);
Values zero_stages(const Plan& plan);
Values orders(const Plan& plan);
Values micro_batches(const Plan& plan);
Values recomputations(const Plan& plan);
Values offloads(const Plan& plan);

}  // namespace rehearse::smaller_values
