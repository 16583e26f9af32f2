// SPDX-License-Identifier: Apache-2.0
// Whether a run fits into this machine's memory, before it starts.
#pragma once

#include <cstdint>
#include <string>

#include "exec/train/resident_plan.h"
#include "schedules/base/result.h"

namespace rehearse::exec {

// 25 000 000 000: "25.00 GB", as reports say it.
std::string bytes_text(std::int64_t bytes);

// Whether this machine has room for so many of a run's processes. Error: one line. `warning`: where
// there is too little free just now, else left as it is.
Result<> enough_memory(const ResidentPlan& plan, std::int32_t processes_here,
                       std::int32_t processes, std::string& warning);

}  // namespace rehearse::exec
