// SPDX-License-Identifier: Apache-2.0
// Whether a run fits into this machine's memory, before it starts, and what it will hold there.
#pragma once

#include <cstdint>
#include <string>

#include "exec/train/resident_plan.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::cli {

// 25 000 000 000: "25.00 GB", as reports say it.
std::string bytes_text(std::int64_t bytes);

// Of a run's data, in each process: what the file's size says.
std::int64_t data_tokens(const std::string& source);

// Whether this machine has room for so many of a run's processes. Error: one line. `warning`: where
// there is too little free just now, else left as it is.
Result<> enough_memory(const ResidentPlan& plan, std::int32_t processes_here,
                       std::int32_t processes, std::string& warning);

}  // namespace rehearse::cli
