// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/stragglers.h"

#include <algorithm>

#include "viz/analysis/ranks/median.h"

namespace rehearse::viz {
namespace {

// Of every class its rows with the time of their ops that compute, the least first; where times are
// equal the first rank's is the largest.
using TimedRows = std::vector<std::pair<std::int64_t, std::int32_t>>;  // [ns], row negated
std::vector<TimedRows> timed_rows(const Trace& trace) {
  std::vector<TimedRows> classes(trace.rows.size());
  for (std::size_t row = 0; row < trace.row_class.size(); ++row) {
    std::int64_t time = 0;
    for (std::int64_t i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      const OpClass kind = traits(trace.class_of(op).kind).op_class;
      if (kind == OpClass::Compute || kind == OpClass::Local)
        time += trace.end_ns[op.index()] - trace.start_ns[op.index()];
    }
    classes[static_cast<std::size_t>(trace.row_class[row])].emplace_back(
        time, -static_cast<std::int32_t>(row));
  }
  for (TimedRows& rows : classes) std::ranges::sort(rows);
  return classes;
}

}  // namespace

std::vector<Straggler> stragglers(const Trace& trace) {
  std::vector<Straggler> all;
  const std::vector<TimedRows> classes = timed_rows(trace);
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const TimedRows& of = classes[c];
    if (of.size() < 2) continue;
    all.push_back({.row_class = static_cast<std::int32_t>(c),
                   .ranks = static_cast<std::int32_t>(of.size()),
                   .slowest = {-of.back().second},
                   .time = of.back().first,
                   .median = of[(of.size() - 1) / 2].first});
  }
  return all;
}

std::vector<double> over_median(const Trace& trace) {
  if (trace.row_class.empty()) return {};
  std::vector<double> over(trace.rows.size());
  for (const TimedRows& of : timed_rows(trace)) {
    if (of.size() < 2) continue;
    std::vector<TimeOfRanks> times;
    for (const auto& [time, row] : of)
      times.push_back({time, trace.rows[static_cast<std::size_t>(-row)].multiplicity});
    const auto median = static_cast<double>(median_of(times));
    for (const auto& [time, row] : of)
      over[static_cast<std::size_t>(-row)] =
          median > 0 ? static_cast<double>(time) / median - 1 : 0;
  }
  return over;
}

}  // namespace rehearse::viz
