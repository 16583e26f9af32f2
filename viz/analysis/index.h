// SPDX-License-Identifier: Apache-2.0
// Exact busy time of any range in O(1): prefix sums of time per kind on a grid of time.
//
// A lane's time axis is cut into cells of 2^shift ns, 4 to 32 items each. For every cell edge the
// index holds the time that each kind was busy before it, in integer ns, and the first item that
// reaches beyond it. Time between edges is read from the items themselves: nothing is rounded, so
// pixel columns add up to the trace. The sums are kept modulo 2^32: a difference over less than
// 2^32 ns is exact, longer ranges are taken in pieces. On lanes of two kinds an index is at most
// 2 B per op, 4 more where a row has several lanes; it holds views into its trace. Not here: what
// is drawn (layout.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// What a span of time on a lane is: the kind of an op, or the cause of an idle span.
using Kind = std::uint8_t;
inline constexpr std::size_t kNumKinds = kNumOpKinds + kNumIdleCauses;
constexpr Kind kind_of(OpKind kind) {
  return static_cast<Kind>(kind);
}
constexpr Kind kind_of(IdleCause cause) {
  return static_cast<Kind>(kNumOpKinds + static_cast<std::size_t>(cause));
}
constexpr bool is_idle(Kind kind) {
  return kind >= kNumOpKinds;
}
constexpr IdleCause cause_of(Kind kind) {
  return static_cast<IdleCause>(kind - kNumOpKinds);
}

// What a lane shows, in order of time and not overlapping. Item i of lane l is op `op(l, i)`.
struct LaneItems {
  const Trace* trace = nullptr;
  const IdleSpan* idle = nullptr;       // idle lane: its spans; else null
  const std::int32_t* order = nullptr;  // ops of the lane; null: first, first + 1, ...
  const Kind* classes = nullptr;        // per op; null: an op's kind
  std::int32_t first = 0, count = 0;

  std::int32_t op(std::int32_t i) const { return order != nullptr ? order[i] : first + i; }
  std::int64_t start(std::int32_t i) const {
    return idle != nullptr ? idle[i].begin : trace->start_ns[static_cast<std::size_t>(op(i))];
  }
  std::int64_t end(std::int32_t i) const {
    return idle != nullptr ? idle[i].end : trace->end_ns[static_cast<std::size_t>(op(i))];
  }
  Kind kind(std::int32_t i) const {
    if (idle != nullptr) return kind_of(idle[i].cause);
    return classes != nullptr ? classes[op(i)] : kind_of(trace->class_of({op(i)}).kind);
  }
};

// The prefix sums of one lane.
struct LaneIndex {
  LaneItems items;
  std::int64_t origin = 0;  // begin of cell 0 [ns]
  std::int32_t shift = 0;   // cells are 2^shift ns
  std::int32_t num_cells = 0;
  std::int32_t num_kinds = 0;                         // kinds that occur on this lane ...
  std::array<Kind, kNumKinds> kinds{};                // ... ascending
  std::array<std::int8_t, kNumKinds> slot_of_kind{};  // inverse; -1: does not occur
  std::vector<std::uint32_t> before;     // (num_cells + 1, num_kinds): busy ns before the edge
  std::vector<std::int32_t> first;       // (num_cells + 1): first item that ends after the edge
  std::vector<std::int32_t> long_items;  // items over two cells and more, ascending

  std::int64_t cell_ns() const { return std::int64_t{1} << shift; }
  // Writes the time of each kind slot within [begin, end): num_kinds numbers [ns].
  // REQUIRES: begin <= end.
  void busy(std::int64_t begin, std::int64_t end, std::int64_t* time) const;
  // Sums before `time` modulo 2^32, num_kinds of them: for neighbouring ranges.
  void busy_before(std::int64_t time, std::uint32_t* sums) const;
  // First item that ends after `time` (count if none).
  std::int32_t first_item_after(std::int64_t time) const;
};

// Index of a whole trace: one LaneIndex per lane, and one per row for its idle spans.
class TraceIndex {
 public:
  // `classes`: what the time of each op is summed up by, numbers below kNumOpKinds; empty: its
  // kind.
  // REQUIRES: both outlive the index, and stay where they are. Lanes hold what read_trace proves.
  explicit TraceIndex(const Trace& trace, std::span<const Kind> classes = {});
  TraceIndex(const TraceIndex&) = delete;
  TraceIndex& operator=(const TraceIndex&) = delete;

  const Trace& trace() const { return *trace_; }
  const LaneIndex& lane(std::int32_t lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  const LaneIndex& idle(std::int32_t row) const { return idle_[static_cast<std::size_t>(row)]; }
  std::size_t bytes() const;  // memory that the index itself takes

 private:
  const Trace* trace_;
  std::vector<std::int32_t> order_;  // ops by lane, for rows with several lanes in use
  std::vector<LaneIndex> lanes_, idle_;
};

}  // namespace rehearse::viz
