// SPDX-License-Identifier: Apache-2.0
// Which order a planned schedule (`auto`, `zb_1p`, `zb_2p`) took: the report's `order`, in a
// prediction and in a run.
#pragma once

#include <optional>
#include <string>

#include "schedules/base/json_document.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// REQUIRES: !plan.order.empty(), as of every planned schedule that was chosen. `choice` as it is by
// default: it was chosen before.
// `above`: above_bound (schedules/passes/planned/plan_order.h), where it was asked for.
Json order_json(const Plan& plan, const OrderChoice& choice, std::optional<double> above = {});
// A line of the text, or none for other schedules.
std::string order_line(const Plan& plan, const OrderChoice& choice,
                       std::optional<double> above = {});

}  // namespace rehearse::sim
