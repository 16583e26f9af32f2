// SPDX-License-Identifier: Apache-2.0
// What a plan keeps in host memory, and on drives (plan.offload).
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// Per row [B]: the arena where the schedule has one, else the most that is there at once, op by op.
std::vector<std::int64_t> host_bytes(const Schedule& schedule);
std::vector<std::int64_t> nvme_bytes(const Schedule& schedule);

// [B] of pinned memory through which a framework's rank swaps what rests on drives; `updated`: the
// parameters that it updates. 0: it swaps nothing, or our executor does, whose file is mapped.
std::int64_t swap_buffers(const Plan& plan, std::int64_t updated);

}  // namespace rehearse::sim
