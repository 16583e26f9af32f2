// SPDX-License-Identifier: Apache-2.0
// What the commands that draw or list a part of a trace have in common: --range, --ranks, pictures.
#pragma once

#include <string>

#include "schedules/trace/trace.h"
#include "viz/picture/scene.h"

namespace rehearse::cli {

// "0:50ms", "1.2s:1.4s", "10:20us": times from the step's begin; a number without a unit takes the
// other's, and seconds where neither has one. Sets both times, cut to the step.
Result<> parse_range(const std::string& text, const Trace& trace, Nanoseconds& begin,
                     Nanoseconds& end);

// "0-15", "3": rows whose first rank lies in it; where the trace knows no ranks, rows by number.
// Sets [first, last).
Result<> parse_ranks(const std::string& text, const Trace& trace, std::int32_t& first,
                     std::int32_t& last);

// Says in one line that a picture of pixels has lost letters which its font lacks.
void say_lost_letters(const viz::Scene& scene, const std::string& path);

}  // namespace rehearse::cli
