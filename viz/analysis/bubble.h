// SPDX-License-Identifier: Apache-2.0
// A bubble whole: all that a rank idles between two ops, by cause, and whom it waits for.
#pragma once

#include <array>
#include <unordered_map>

#include "viz/analysis/causality.h"

namespace rehearse::viz {

// What an op waited for that came last.
struct Wait {
  OpId via;     // the transfer, collective or copy that brought it; none: nothing did
  OpId sent;    // its other end: the SEND of a RECV, the last member of a collective; else `via`
  OpId source;  // the op that this waited for in its turn, on the rank that was waited for; none:
                // it waited for nothing
};
// The last member of each collective that was asked for, by its node: one of thousands is looked
// for once.
using LastMembers = std::unordered_map<std::int32_t, OpId>;
// Of an op that computes what came last from elsewhere than its own lane, if anything did; of all
// others what came last. `known` saves time where many are asked for.
Wait waited_for(const Trace& trace, const Causality& causes, OpId op, LastMembers* known = nullptr);

// Of an op that meets others at a match: the SEND, or the member of a collective that was ready
// last; else the op.
OpId other_end(const Trace& trace, const Causality& causes, OpId op);

// Idle spans that follow one another without an op between them.
struct Bubble {
  RankClass row;
  std::int64_t begin = 0, end = 0;                    // [ns]
  OpId op;                                            // that ends it; none: the step's end does
  std::array<std::int64_t, kNumIdleCauses> causes{};  // add up to end - begin
  std::int32_t first = 0, last = 0;                   // its spans are [first, last) of Trace::idle
  Wait wait;  // of `op`; of a bubble that the step's end ends, `source` is the op that ended last
};
// The bubble that holds a span of Trace::idle.
Bubble bubble_at(const Trace& trace, const Causality& causes, std::int32_t idle);

}  // namespace rehearse::viz
