// SPDX-License-Identifier: Apache-2.0
// The ranks for which others waited, as bars by cause and as text: how long, for which op of theirs
// the longest, and who waited.
#pragma once

#include <string>
#include <vector>

#include "viz/analysis/ranks/waited.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

// What every form says of a rank.
struct StragglerWords {
  std::string rank;     // "rank 3"
  std::string time;     // that others waited, all together
  std::string share;    // of all ranks' time
  std::string longest;  // bubble; empty: there were only those of filling and draining
  std::string op;       // that was waited for
  std::string waiter;   // "1B5 on rank 2"
  std::string cause;    // of most of it
};
StragglerWords straggler_words(const Trace& trace, const WaitedFor& rank);
// What the list says where it is empty: the trace knows no waits, or nobody waited.
std::string no_stragglers(const Trace& trace);

struct StragglerOptions {
  Theme theme = Theme::Light;
  std::int32_t width = 1600;  // [px]
  std::size_t most = 24;      // ranks
};
Scene straggler_chart(const Trace& trace, const std::vector<WaitedFor>& ranks,
                      const StragglerOptions& options);
std::string stragglers_text(const Trace& trace, const std::vector<WaitedFor>& ranks,
                            std::size_t most = 24);

}  // namespace rehearse::viz
