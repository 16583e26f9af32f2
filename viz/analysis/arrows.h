// SPDX-License-Identifier: Apache-2.0
// Who waited for whom, across ranks, as arrows: from a SEND to its RECV, from the last member of a
// collective to the others, and from the op that a bubble waited for.
#pragma once

#include <vector>

#include "viz/analysis/bubble.h"

namespace rehearse::viz {

enum class ArrowKind : std::uint8_t {
  Transfer,    // from a SEND to its RECV
  Collective,  // from the member that was ready last to another
  Wait,        // from what came last to the op that waited for it, on one rank or two
};
struct Arrow {
  OpId from, to;
  ArrowKind kind{};
  bool operator==(const Arrow&) const = default;
};

// What meets at an op's match: none for an op without one. Of a collective of n ranks n - 1.
std::vector<Arrow> match_arrows(const Trace& trace, const Causality& causes, OpId op);

// Why an op began when it did: from what it waited for, through what brought it, to the op itself;
// and what meets at the op. In order of time.
std::vector<Arrow> arrows_of(const Trace& trace, const Causality& causes, OpId op);

// Along a chain of ops of which each waited for the one before: from rank to rank through the
// transfers and collectives on it.
std::vector<Arrow> path_arrows(const Trace& trace, const Causality& causes,
                               std::span<const OpId> path);

}  // namespace rehearse::viz
