// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/arrows.h"

namespace rehearse::viz {

std::vector<Arrow> match_arrows(const Trace& trace, const Causality& causes, OpId op) {
  std::vector<Arrow> arrows;
  const auto members = causes.members(causes.node_of(op));
  if (members.size() < 2) return arrows;
  const bool transfer = traits(trace.class_of(op).kind).op_class == OpClass::Transfer;
  const OpId from = other_end(trace, causes, op);
  for (const std::int32_t member : members) {
    if (member == from.value) continue;
    arrows.push_back({from, {member}, transfer ? ArrowKind::Transfer : ArrowKind::Collective});
  }
  return arrows;
}

std::vector<Arrow> arrows_of(const Trace& trace, const Causality& causes, OpId op) {
  std::vector<Arrow> arrows;
  const Wait wait = waited_for(trace, causes, op);
  if (!wait.via) {
    if (wait.source) arrows.push_back({wait.source, op, ArrowKind::Wait});
  } else {
    if (wait.source) arrows.push_back({wait.source, wait.sent, ArrowKind::Wait});
    for (const Arrow& arrow : match_arrows(trace, causes, wait.via)) {
      if (arrow.to == wait.via) arrows.push_back(arrow);
    }
    arrows.push_back({wait.via, op, ArrowKind::Wait});
  }
  for (const Arrow& arrow : match_arrows(trace, causes, op)) arrows.push_back(arrow);
  return arrows;
}

std::vector<Arrow> path_arrows(const Trace& trace, const Causality& causes,
                               std::span<const OpId> path) {
  std::vector<Arrow> arrows;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    // The path enters a match by the member that it waited with and leaves it by another.
    const OpId from = path[i], to = path[i + 1];
    OpId by;
    for (const std::int32_t member : causes.members(causes.node_of(to))) {
      causes.for_each_before_op({member}, [&](OpId before) {
        if (before == from && (!by || member == to.value)) by = {member};
      });
    }
    if (!by) by = to;
    arrows.push_back({from, by, ArrowKind::Wait});
    if (by == to) continue;
    const bool transfer = traits(trace.class_of(to).kind).op_class == OpClass::Transfer;
    arrows.push_back({by, to, transfer ? ArrowKind::Transfer : ArrowKind::Collective});
  }
  return arrows;
}

}  // namespace rehearse::viz
