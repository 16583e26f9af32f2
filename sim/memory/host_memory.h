// SPDX-License-Identifier: Apache-2.0
// What a plan keeps in host memory (plan.offload).
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::sim {

// Per row [B]: the arena where the schedule has one, else the most that is there at once, op by op.
std::vector<std::int64_t> host_bytes(const Schedule& schedule);

}  // namespace rehearse::sim
