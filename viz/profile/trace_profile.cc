// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "viz/analysis/causality.h"
#include "viz/profile/read_profiles.h"

namespace rehearse::viz {
namespace {

// Ends of a transfer and members of a collective start together in a trace: a rank comes to its
// own when all is there that this rank puts before it.
std::int64_t came_to(const Trace& trace, const Causality& causality, OpId op, std::size_t row) {
  std::int64_t came = trace.begin.value;
  bool known = false;
  causality.for_each_before_op(op, [&](OpId before) {
    const bool own = before.index() >= static_cast<std::size_t>(trace.row_begin[row]) &&
                     before.index() < static_cast<std::size_t>(trace.row_begin[row + 1]);
    if (!own) return;
    known = true;
    came = std::max(came, trace.end_ns[before.index()]);
  });
  const std::int64_t start = trace.start_ns[op.index()];
  return known ? std::min(came, start) : start;
}

}  // namespace

std::vector<RankProfile> trace_profiles(const Trace& trace, const std::string& path) {
  const Causality causality(trace);
  std::vector<RankProfile> profiles;
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    ProfileBuilder build;
    const std::int32_t first = trace.rows[row].first_rank.value;
    build.profile().rank = first >= 0 ? first : static_cast<std::int32_t>(row);
    build.profile().path = path;
    build.step(0, trace.begin.value, trace.end.value);
    for (std::int64_t i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      const std::int64_t start = trace.start_ns[op.index()], end = trace.end_ns[op.index()];
      const OpClass op_class = traits(trace.class_of(op).kind).op_class;
      if (op_class == OpClass::Compute || op_class == OpClass::Local) {
        const bool waits = !trace.communicating_ns.empty();
        const std::int64_t inside = waits ? trace.communicating_ns[op.index()] : 0;
        build.computes(start, end - inside);
        build.exchanges({.begin = end - inside, .end = end});
        continue;
      }
      Exchange one{.begin = came_to(trace, causality, op, row), .end = end};
      const std::int32_t match = trace.partner[op.index()];
      if (op_class != OpClass::Copy && match >= 0) one.meeting = std::to_string(match);
      build.exchanges(std::move(one));
    }
    profiles.push_back(build.finish(0));
  }
  return profiles;
}

}  // namespace rehearse::viz
