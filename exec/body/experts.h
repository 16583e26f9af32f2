// SPDX-License-Identifier: Apache-2.0
// Private to exec/body: what the routers' choices come to on a rank: rows by expert, what ranks
// send one another, and the counts of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/body/op_view.h"

namespace rehearse::exec {

// The last number of an array of first rows: how many rows there are. REQUIRES: the host can read
// it.
inline std::int64_t last_of(const OpView& op, const Node& n, std::size_t i) {
  return ints(op.in(n, i))[op.tensor(n.reads[i]).bytes / 4 - 1];
}

// By member of `ep`: elements that a rank sends to it, and receives from it.
struct UnequalParts {
  std::vector<std::int64_t> sends, receives;
};
// Those of a node that sends rows of `width` elements by their counts (experts.cc).
void split(const OpView& op, const Node& n, std::int64_t width, UnequalParts* parts);

// ---- expert_counts.cc: into StepFacts::expert_counts, where a step counts them ------------------
ExpertLimits limits_of(const Layout& layout, const ExpertRoom& room);
// Rows of this rank's experts; begin: their first rows, and the end.
void count_rows(const OpView& op, const std::int32_t* begin);
// The most rows of one rank's experts, by what all ranks' tokens chose.
void count_most_rows(const OpView& op, std::int64_t copies, const std::int32_t* chosen);
// The same where every row of all sources is for experts that are here.
void count_most_here(const OpView& op, const std::int32_t* begin);
// The most of a slot, by the rows that each source sends before those for every expert, or every
// rank.
void count_most_of_slots(const OpView& op, const CountShape& shape, const std::int32_t* begins);
// Both where rows are sent by their counts: by the first rows of every source, which the host
// reads.
void count_most_sent(const OpView& op, const ArrivedShape& shape, const std::int32_t* begins);
// The op fails where more came than there is room for, if the host can read it now.
void check_room(const OpView& op);

}  // namespace rehearse::exec
