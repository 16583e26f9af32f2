// SPDX-License-Identifier: Apache-2.0
// Which order a plan asks the registry for, and of which shape.
#pragma once

#include <string>

#include "schedules/base/result.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// What generates the plan's order: the one that was chosen for a planned schedule, else its
// schedule.
const std::string& name_of_order(const Plan& plan);

// The shape that a plan asks for; durations of planned schedules are the caller's to fill in.
Result<ScheduleShape> shape_of(const Plan& plan);

}  // namespace rehearse
