// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/stragglers.h"

#include <algorithm>

namespace rehearse::viz {

std::vector<Straggler> stragglers(const Trace& trace) {
  std::vector<std::vector<std::pair<std::int64_t, std::int32_t>>> times(trace.rows.size());
  for (std::size_t row = 0; row < trace.row_class.size(); ++row) {
    std::int64_t time = 0;
    for (std::int64_t i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      const OpClass kind = traits(trace.class_of(op).kind).op_class;
      if (kind == OpClass::Compute || kind == OpClass::Local)
        time += trace.end_ns[op.index()] - trace.start_ns[op.index()];
    }
    // Where times are equal the first rank's is the largest.
    times[static_cast<std::size_t>(trace.row_class[row])].emplace_back(
        time, -static_cast<std::int32_t>(row));
  }
  std::vector<Straggler> all;
  for (std::size_t c = 0; c < times.size(); ++c) {
    auto& of = times[c];
    if (of.size() < 2) continue;
    std::ranges::sort(of);
    all.push_back({.row_class = static_cast<std::int32_t>(c),
                   .ranks = static_cast<std::int32_t>(of.size()),
                   .slowest = {-of.back().second},
                   .time = of.back().first,
                   .median = of[(of.size() - 1) / 2].first});
  }
  return all;
}

}  // namespace rehearse::viz
