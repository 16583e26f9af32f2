// SPDX-License-Identifier: Apache-2.0
// Traces of single ranks -> one trace of all of them, on one clock.
#include <algorithm>
#include <limits>

#include "viz/import/import.h"

namespace rehearse::viz {

Result<Trace> join_profiles(std::vector<Profile> profiles) {
  std::ranges::stable_sort(profiles, [](const Profile& a, const Profile& b) {
    return static_cast<std::uint32_t>(a.rank) < static_cast<std::uint32_t>(b.rank);  // -1: last
  });
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  Trace out;
  out.label = TraceLabel::Measured;
  for (const Profile& profile : profiles) {
    origin = std::min(origin, profile.origin_ns);
    out.slots = std::max(out.slots, profile.trace.slots);
    out.microbatches = std::max(out.microbatches, profile.trace.microbatches);
    out.profiled_steps = std::max(out.profiled_steps, profile.trace.profiled_steps);
  }
  std::vector<TraceRow> rows;
  std::vector<TraceLane> lanes;
  std::vector<TraceClass> classes;
  std::vector<std::int64_t> row_begin{0}, start, end;
  std::vector<std::int32_t> op_class, microbatch;
  for (Profile& profile : profiles) {
    const Trace& trace = profile.trace;
    const auto text = static_cast<TraceString>(out.strings.size());
    const auto first_class = static_cast<std::int32_t>(classes.size());
    constexpr std::int64_t kDay = 86'400'000'000'000;  // [ns]
    const std::int64_t shift = profile.origin_ns - origin;
    if (shift >= kDay) return Error{"the files are not of one run: their times are days apart"};
    const auto moved = [text](TraceString id) { return id < 0 ? id : id + text; };
    out.strings.insert(out.strings.end(), trace.strings.begin(), trace.strings.end());
    for (TraceClass c : trace.classes) {
      c.group = moved(c.group);
      c.name = moved(c.name);
      classes.push_back(c);
    }
    for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
      TraceRow info = trace.rows[static_cast<std::size_t>(row)];
      info.name = moved(info.name);
      info.position = {static_cast<std::int32_t>(rows.size())};
      rows.push_back(info);
      row_begin.push_back(row_begin.back() + trace.row_begin[static_cast<std::size_t>(row) + 1] -
                          trace.row_begin[static_cast<std::size_t>(row)]);
      for (std::int32_t slot = 0; slot < out.slots; ++slot) {
        TraceLane lane;
        if (slot < trace.slots)
          lane = trace.lanes[static_cast<std::size_t>(row * trace.slots + slot)];
        lane.name = moved(lane.name);
        lanes.push_back(lane);
      }
    }
    for (std::size_t i = 0; i < trace.start_ns.size(); ++i) {
      start.push_back(trace.start_ns[i] + shift);
      end.push_back(trace.end_ns[i] + shift);
      op_class.push_back(trace.op_class[i] + first_class);
      microbatch.push_back(trace.microbatch[i]);
    }
    out.end = std::max(out.end, trace.end + Nanoseconds{shift});
    profile.trace = {};  // its memory
  }
  const std::size_t n = start.size();
  out.rows = std::move(rows);
  out.lanes = std::move(lanes);
  out.classes = std::move(classes);
  out.row_begin = std::move(row_begin);
  out.start_ns = std::move(start);
  out.end_ns = std::move(end);
  out.op_class = std::move(op_class);
  out.microbatch = std::move(microbatch);
  out.partner = std::vector<std::int32_t>(n, -1);
  return out;
}

}  // namespace rehearse::viz
