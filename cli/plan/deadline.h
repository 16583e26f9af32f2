// SPDX-License-Identifier: Apache-2.0
// Dates of the command line: when a training run begins, and by when it has to be done.
#pragma once

#include <chrono>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::cli {

// "2027-03-01". Errors: "FLAG: what is wrong".
Result<std::chrono::sys_days> read_date(const std::string& text, std::string_view flag);
std::string date_text(std::chrono::sys_days day);
// The day on which a run is done that begins at the first hour of `start`.
std::chrono::sys_days day_after(std::chrono::sys_days start, double seconds);
// From the first hour of `start` to the last of `by`. Errors: `by` is before `start`.
Result<double> seconds_until(std::chrono::sys_days start, std::chrono::sys_days by);

}  // namespace rehearse::cli
