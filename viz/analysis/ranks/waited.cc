// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/waited.h"

#include <algorithm>

#include "viz/analysis/bubble.h"

namespace rehearse::viz {
bool WaitedFor::counts(std::size_t cause) {
  return cause != static_cast<std::size_t>(IdleCause::Warmup) &&
         cause != static_cast<std::size_t>(IdleCause::Cooldown);
}

std::int64_t WaitedFor::time() const {
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) sum += counts(c) ? causes[c] : 0;
  return sum;
}

bool knows_waits(const Trace& trace) {
  return !trace.idle_begin.empty() && !trace.wait_begin.empty();
}

std::vector<WaitedFor> waited_for_ranks(const Trace& trace, const Causality& causes) {
  std::vector<WaitedFor> ranks(trace.rows.size());
  for (std::size_t row = 0; row < ranks.size(); ++row)
    ranks[row].row = {static_cast<std::int32_t>(row)};
  if (!knows_waits(trace)) return {};
  LastMembers last_members;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    const std::int64_t waiting = trace.rows[at].multiplicity;
    for (std::int64_t first = trace.idle_begin[at]; first < trace.idle_begin[at + 1];) {
      Bubble bubble{.row = {row}};
      std::int64_t last = first;
      do {
        const IdleSpan& span = trace.idle[static_cast<std::size_t>(last)];
        bubble.causes[static_cast<std::size_t>(span.cause)] += span.end - span.begin;
        bubble.op = span.op;
        ++last;
      } while (last < trace.idle_begin[at + 1] &&
               trace.idle[static_cast<std::size_t>(last)].begin ==
                   trace.idle[static_cast<std::size_t>(last - 1)].end);
      first = last;
      if (!bubble.op) continue;  // the step's end: nobody is waited for
      const OpId source = waited_for(trace, causes, bubble.op, &last_members).source;
      if (!source || trace.row_of(source).value == row) continue;
      WaitedFor& rank = ranks[trace.row_of(source).index()];
      ++rank.bubbles;
      std::int64_t time = 0, most = 0;
      IdleCause cause{};
      for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
        rank.causes[c] += waiting * bubble.causes[c];
        if (!WaitedFor::counts(c)) continue;
        time += bubble.causes[c];
        if (bubble.causes[c] <= most) continue;
        most = bubble.causes[c];
        cause = static_cast<IdleCause>(c);
      }
      if (time <= rank.longest) continue;
      rank.longest = time;
      rank.op = source;
      rank.waiter = bubble.op;
      rank.cause = cause;
    }
  }
  std::erase_if(ranks, [](const WaitedFor& rank) { return rank.bubbles == 0; });
  std::ranges::stable_sort(ranks, std::greater{}, &WaitedFor::time);
  return ranks;
}

}  // namespace rehearse::viz
