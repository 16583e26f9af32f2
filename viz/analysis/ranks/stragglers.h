// SPDX-License-Identifier: Apache-2.0
// The rank that took longest among those that perform the same program.
#pragma once

#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// The straggler of one class of equal ranks. A rank's time is that of its ops that compute (the
// optimizer's too): what it waits for between them, for whomever, does not count. Where tensor or
// context parallel ranks meet inside their ops, all of a group take as long as its slowest.
struct Straggler {
  std::int32_t row_class = 0, ranks = 0;
  RankClass slowest{};
  std::int64_t time = 0, median = 0;  // [ns]; of an even number of ranks the lower one
  double excess() const {             // 0.1: it took 10 % longer than the median
    return median > 0 ? static_cast<double>(time) / static_cast<double>(median) - 1 : 0;
  }
};

// Stragglers of every class of at least two ranks, by class. Empty where a row stands for several
// ranks.
std::vector<Straggler> stragglers(const Trace& trace);
// Per row how much longer than the median of its class its ops that compute take: 0.1: 10 %; 0 for
// a row that is alone in its class. Empty as above.
std::vector<double> over_median(const Trace& trace);

}  // namespace rehearse::viz
