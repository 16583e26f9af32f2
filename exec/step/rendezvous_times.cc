// SPDX-License-Identifier: Apache-2.0
#include "exec/step/rendezvous_times.h"

#include <algorithm>

namespace rehearse::exec {

std::vector<Nanoseconds> rendezvous_starts(const Schedule& schedule,
                                           std::span<const Nanoseconds> start,
                                           std::span<const Nanoseconds> end) {
  std::vector<Nanoseconds> starts(start.begin(), start.end());
  std::vector<Nanoseconds> last;  // per match: when the last of its ops was ready
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const MatchId match = schedule.ops[i].match;
    if (!match) continue;
    if (match.index() >= last.size()) last.resize(match.index() + 1, Nanoseconds{});
    last[match.index()] = std::max(last[match.index()], start[i]);
  }
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const MatchId match = schedule.ops[i].match;
    if (match && last[match.index()] < end[i]) starts[i] = last[match.index()];
  }
  return starts;
}

}  // namespace rehearse::exec
