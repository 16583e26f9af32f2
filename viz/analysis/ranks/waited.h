// SPDX-License-Identifier: Apache-2.0
// The ranks for which others waited, and with which of their ops; and who waited for whom.
#pragma once

#include <array>
#include <vector>

#include "viz/analysis/causality.h"

namespace rehearse::viz {

// What others waited between their ops for one rank: bubbles whose end had to wait for an op of
// that rank last. Waits of members of a collective inside an op are not known by rank.
struct WaitedFor {
  RankClass row;
  std::int64_t bubbles = 0;
  std::array<std::int64_t, kNumIdleCauses> causes{};  // [ns], over all ranks that waited
  // The longest of them, but for filling and draining; none where all are of these.
  std::int64_t longest = 0;  // [ns]
  OpId op;                   // of the rank: what was waited for
  OpId waiter;               // what waited
  IdleCause cause{};         // of most of it

  // Without warmup and cooldown, which a pipeline's shape makes: they are no rank's doing.
  std::int64_t time() const;
  static bool counts(std::size_t cause);  // towards time()
};

// The ranks that were waited for, most time() first. Empty where the trace knows no waits.
std::vector<WaitedFor> waited_for_ranks(const Trace& trace, const Causality& causes);

// What one row waited between its ops for another one, counted as above.
struct RankWait {
  RankClass waiter, source;
  std::int64_t bubbles = 0;
  std::array<std::int64_t, kNumIdleCauses> causes{};  // [ns], over all ranks of the waiting row
  std::int64_t longest = 0;                           // [ns]; as in WaitedFor
  OpId op, waiting;                                   // what was waited for; what waited
  IdleCause cause{};

  std::int64_t time() const;
};
// Every pair of rows of which one waited for the other, most time() first.
std::vector<RankWait> waits_between_ranks(const Trace& trace, const Causality& causes);

// Whether a trace can say: it has causes of idle time, and what waited for what.
bool knows_waits(const Trace& trace);

}  // namespace rehearse::viz
