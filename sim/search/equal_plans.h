// SPDX-License-Identifier: Apache-2.0
// Plans that the prediction cannot tell apart: one row of a search's answer.
#pragma once

#include <vector>

#include "sim/search/search.h"

namespace rehearse::sim {

// Errors of competing plans are mostly shared, so that far less than the band tells them apart:
// plans within `difference` (ln, ErrorTable::pair_equal) of the fastest of a row join it.
// The simplest of a row is shown and the others are its `equal`, by time.
// REQUIRES: `by_time` ascends.
std::vector<FoundPlan> merge_equal(std::vector<FoundPlan> by_time, double difference);

// Which of two plans asks for less machinery: fewer kinds of parallelism and habits, then smaller
// sizes of them.
bool simpler(const Plan& a, const Plan& b);

}  // namespace rehearse::sim
