// SPDX-License-Identifier: Apache-2.0
// What all forms of a search's report ask of a found plan, and units for people.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/search/search.h"

namespace rehearse::sim {

struct StepPart {
  std::string name;
  double seconds = 0;
};
// What a step consists of: computing, and every cause of idleness.
std::vector<StepPart> parts_of(const FoundPlan& plan);
// What the ranks idle for longest; none: less than half a per cent.
std::optional<StepPart> longest_idle(const FoundPlan& plan);

double tokens_per_usd(const FoundPlan& plan);  // REQUIRES: a price
// Too near to the capacity to be sure that it fits.
bool near_capacity(const FoundPlan& plan);

std::string_view name_of(Situation situation);  // "everything_fits", ...

// "41.2 GB"; "1.234 s", "12.34 ms".
std::string gigabytes_text(std::int64_t bytes);
std::string seconds_text(double s);

}  // namespace rehearse::sim
