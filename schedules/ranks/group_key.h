// SPDX-License-Identifier: Apache-2.0
// Which ranks meet in one group of a schedule: those whose keys are equal.
#pragma once

#include <array>
#include <string_view>

#include "schedules/ir/placement.h"
#include "schedules/scenario/mesh.h"

namespace rehearse {

// Of a rank with these coordinates; the first number is -1 where it is in no instance of the group.
std::array<std::int32_t, 3> group_key(std::string_view group, const Coordinates& at,
                                      const Plan& plan, const Placement& placement);

}  // namespace rehearse
