// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/waited.h"

#include <algorithm>
#include <map>

#include "viz/analysis/bubble.h"

namespace rehearse::viz {
bool WaitedFor::counts(std::size_t cause) {
  return cause != static_cast<std::size_t>(IdleCause::Warmup) &&
         cause != static_cast<std::size_t>(IdleCause::Cooldown);
}

namespace {

std::int64_t counted(const std::array<std::int64_t, kNumIdleCauses>& causes) {
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) sum += WaitedFor::counts(c) ? causes[c] : 0;
  return sum;
}

// A bubble whose end had to wait for an op of another row last.
struct WaitingBubble {
  std::int32_t row = 0;
  std::int64_t ranks = 0;  // that wait so
  std::array<std::int64_t, kNumIdleCauses> causes{};
  OpId source, op;  // that was waited for; that waited
};

template <class Visit>
void for_each_waiting(const Trace& trace, const Causality& causes, Visit visit) {
  LastMembers last_members;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const auto at = static_cast<std::size_t>(row);
    for (std::int64_t first = trace.idle_begin[at]; first < trace.idle_begin[at + 1];) {
      WaitingBubble bubble{.row = row, .ranks = trace.rows[at].multiplicity};
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
      bubble.source = waited_for(trace, causes, bubble.op, &last_members).source;
      if (bubble.source && trace.row_of(bubble.source).value != row) visit(bubble);
    }
  }
}

// Of one bubble what `to` sums up: a WaitedFor or a RankWait.
template <class Sum>
void add(const WaitingBubble& bubble, Sum& to, OpId& waiting) {
  ++to.bubbles;
  std::int64_t most = 0;
  IdleCause cause{};
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    to.causes[c] += bubble.ranks * bubble.causes[c];
    if (!WaitedFor::counts(c) || bubble.causes[c] <= most) continue;
    most = bubble.causes[c];
    cause = static_cast<IdleCause>(c);
  }
  const std::int64_t time = counted(bubble.causes);
  if (time <= to.longest) return;
  to.longest = time;
  to.op = bubble.source;
  waiting = bubble.op;
  to.cause = cause;
}

}  // namespace

std::int64_t WaitedFor::time() const {
  return counted(causes);
}
std::int64_t RankWait::time() const {
  return counted(causes);
}

bool knows_waits(const Trace& trace) {
  return !trace.idle_begin.empty() && !trace.wait_begin.empty();
}

std::vector<WaitedFor> waited_for_ranks(const Trace& trace, const Causality& causes) {
  if (!knows_waits(trace)) return {};
  std::vector<WaitedFor> ranks(trace.rows.size());
  for (std::size_t row = 0; row < ranks.size(); ++row)
    ranks[row].row = {static_cast<std::int32_t>(row)};
  for_each_waiting(trace, causes, [&](const WaitingBubble& bubble) {
    WaitedFor& rank = ranks[trace.row_of(bubble.source).index()];
    add(bubble, rank, rank.waiter);
  });
  std::erase_if(ranks, [](const WaitedFor& rank) { return rank.bubbles == 0; });
  std::ranges::stable_sort(ranks, std::greater{}, &WaitedFor::time);
  return ranks;
}

std::vector<RankWait> waits_between_ranks(const Trace& trace, const Causality& causes) {
  if (!knows_waits(trace)) return {};
  std::map<std::pair<std::int32_t, std::int32_t>, RankWait> pairs;
  for_each_waiting(trace, causes, [&](const WaitingBubble& bubble) {
    const RankClass source = trace.row_of(bubble.source);
    RankWait& pair = pairs[{bubble.row, source.value}];
    pair.waiter = {bubble.row};
    pair.source = source;
    add(bubble, pair, pair.waiting);
  });
  std::vector<RankWait> all;
  for (const auto& [rows, pair] : pairs) all.push_back(pair);
  std::ranges::stable_sort(all, std::greater{}, &RankWait::time);
  return all;
}

}  // namespace rehearse::viz
