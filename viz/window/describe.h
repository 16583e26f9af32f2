// SPDX-License-Identifier: Apache-2.0
// One op, one bubble, memory or a link at one time, in words: what the window's panel and tooltip
// say.
#pragma once

#include <string>
#include <vector>

#include "viz/window/heat_view.h"
#include "viz/window/session.h"

namespace rehearse::viz {

struct Fact {
  std::string name, value;
};

// Times, place, data, what arrived last, slack, what its predicted cost rests on, and the other
// trace's time where two are compared. `deep`: also what needs a walk over the whole trace.
std::vector<Fact> describe_op(const Session& session, OpRef op, bool deep);
// The whole bubble that holds a span of Trace::idle: its causes, and whom it waits for.
std::vector<Fact> describe_bubble(const Document& document, std::int32_t idle);
// What begins together: "steps begin together", "2B5 begins together, on rank 3", "on one clock".
std::string alignment_words(const Session& session, const Alignment& alignment);
// How far the second trace is behind the first on a row at a time of its own clock [ns].
std::vector<Fact> describe_lag(const Session& session, const Alignment& alignment, RankClass row,
                               std::int64_t time);
// What a cell of the heat map holds.
std::vector<Fact> describe_cell(const Session& session, const HeatCell& cell);
// Times since the step's begin [ns]. What a row's memory holds then, and its peak; a link's load.
std::vector<Fact> describe_memory(const Document& document, RankClass row, std::int64_t since);
std::vector<Fact> describe_link(const Document& document, std::int32_t link, std::int64_t since);

}  // namespace rehearse::viz
