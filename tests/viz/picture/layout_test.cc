// SPDX-License-Identifier: Apache-2.0
// What is drawn is what the trace holds: sums, order, and the way back from a pixel.
#include "viz/picture/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/viz/picture/pipeline_fixture.h"

namespace rehearse::viz {
namespace {

using fixture::one_f_one_b_trace;
using fixture::random_trace;
using TimePerKind = std::map<Kind, std::int64_t>;

// Time of each kind on a lane inside [begin, end), op by op: what the layout must show.
TimePerKind true_time(const Trace& trace, std::int32_t lane, std::int64_t begin, std::int64_t end) {
  TimePerKind time;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    if (trace.lane_of(op) != lane) continue;
    const std::int64_t overlap =
        std::min(trace.end_ns[op.index()], end) - std::max(trace.start_ns[op.index()], begin);
    if (overlap > 0) time[kind_of(trace.class_of(op).kind)] += overlap;
  }
  return time;
}

TimePerKind drawn_time(const Frame& frame, const LaneFrame& lane, bool idle) {
  TimePerKind time;
  for (const Box& box : frame.boxes_of(lane)) {
    if (box.idle == idle) time[box.kind] += box.end - box.begin;
  }
  const ColumnTable& table = idle ? lane.idle : lane.ops;
  for (std::size_t c = 0; table.any && c < frame.num_columns(); ++c) {
    for (std::size_t k = 0; k < table.kinds.size(); ++k) {
      time[table.kinds[k]] += frame.column(table, c)[k];
    }
  }
  std::erase_if(time, [](const auto& entry) { return entry.second == 0; });
  return time;
}

// No column holds more time than it is wide, and none a negative time.
void expect_columns_fit(const Frame& frame, const LaneFrame& lane) {
  for (std::size_t c = 0; lane.ops.any && c < frame.num_columns(); ++c) {
    std::int64_t sum = 0;
    for (const std::int64_t time : frame.column(lane.ops, c)) {
      EXPECT_GE(time, 0);
      sum += time;
    }
    EXPECT_LE(sum, frame.edges[c + 1] - frame.edges[c]);
  }
}

// Gaps of a row as idle spans, all of one cause: what the simulator would leave.
void fill_idle(Trace& trace) {
  std::vector<IdleSpan> spans;
  std::vector<std::int64_t> begin{0};
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    std::int64_t free = trace.begin.value;
    const auto add = [&](std::int64_t to, std::int32_t op) {
      if (to > free) {
        spans.push_back({.begin = free,
                         .end = to,
                         .op = {op},
                         .cause = static_cast<IdleCause>(spans.size() % kNumIdleCauses)});
      }
    };
    for (std::int64_t i = trace.row_begin[static_cast<std::size_t>(row)];
         i < trace.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
      const auto op = static_cast<std::size_t>(i);
      if (trace.class_of({static_cast<std::int32_t>(i)}).slot != 0) continue;
      add(trace.start_ns[op], static_cast<std::int32_t>(i));
      free = trace.end_ns[op];
    }
    add(trace.end.value, -1);
    begin.push_back(static_cast<std::int64_t>(spans.size()));
  }
  trace.idle = std::move(spans);
  trace.idle_begin = std::move(begin);
}

TimePerKind true_idle(const Trace& trace, std::int32_t row, std::int64_t begin, std::int64_t end) {
  TimePerKind time;
  for (std::int64_t i = trace.idle_begin[static_cast<std::size_t>(row)];
       i < trace.idle_begin[static_cast<std::size_t>(row) + 1]; ++i) {
    const IdleSpan& span = trace.idle[static_cast<std::size_t>(i)];
    const std::int64_t overlap = std::min(span.end, end) - std::max(span.begin, begin);
    if (overlap > 0) time[kind_of(span.cause)] += overlap;
  }
  return time;
}

// 40 traces, 25 zooms of each, both column grids: integers, so equality.
TEST(Layout, DrawnTimePerLaneAndKindEqualsTheTraces) {
  std::mt19937 random(7);
  Frame frame;
  std::int64_t columns_seen = 0, boxes_seen = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Trace trace = seed % 4 == 3
                      ? one_f_one_b_trace(4, static_cast<std::int32_t>(20 + seed))
                      : random_trace(3, static_cast<std::int32_t>(40u << (seed % 8)), seed,
                                     1 + static_cast<std::int64_t>(random() % 100000));
    fill_idle(trace);
    const TraceIndex index(trace);
    const auto lanes = shown_lanes(index, 0, trace.num_rows(), true);
    for (int zoom = 0; zoom < 25; ++zoom) {
      const auto span = static_cast<std::uint64_t>(trace.step().value);
      std::int64_t begin = trace.begin.value + static_cast<std::int64_t>(random() % span);
      std::int64_t end =
          begin + 1 +
          static_cast<std::int64_t>(random() % span) / (std::int64_t{1} << (random() % 12));
      if (zoom == 0) {
        begin = trace.begin.value;
        end = trace.end.value;
      }
      if (zoom == 1) {
        begin = trace.begin.value - 1000;
        end = trace.end.value + 1000;
      }
      const View view{.begin = {begin},
                      .end = {end},
                      .width_px = 1 + static_cast<std::int32_t>(random() % 2000),
                      .snap = zoom % 2 == 0};
      layout(index, view, lanes, frame);
      for (const LaneFrame& lane : frame.lanes) {
        EXPECT_EQ(drawn_time(frame, lane, false), true_time(trace, lane.lane, begin, end));
        if (lane.lane % trace.slots == 0) {
          EXPECT_EQ(drawn_time(frame, lane, true),
                    true_idle(trace, lane.lane / trace.slots, begin, end));
        }
        expect_columns_fit(frame, lane);
        columns_seen += lane.ops.any;
        boxes_seen += lane.box_end - lane.box_begin;
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(columns_seen, 1000);  // both ways of drawing were used
  EXPECT_GT(boxes_seen, 10000);
}

// Sums are kept modulo 2^32 ns; a step of 20 minutes with columns of 5 s is beyond that.
TEST(Layout, IsExactForStepsBeyondThirtyTwoBits) {
  const Trace trace = random_trace(2, 4000, 1, 300'000'000);  // mean 150 ms: about 14 minutes
  ASSERT_GT(trace.step().value, std::int64_t{100} << 32);
  const TraceIndex index(trace);
  const auto lanes = shown_lanes(index, 0, 2, true);
  Frame frame;
  for (const bool snap : {false, true}) {
    layout(index, {.begin = trace.begin, .end = trace.end, .width_px = 100, .snap = snap}, lanes,
           frame);
    for (const LaneFrame& lane : frame.lanes) {
      EXPECT_EQ(drawn_time(frame, lane, false),
                true_time(trace, lane.lane, trace.begin.value, trace.end.value));
    }
  }
}

// 64 ranks of 1F1B: folding runs of ops narrower than 3 px into grey bars (Tracy's rule) hides
// idle time; the columns hide none of it, as the sums above are per kind and column.
TEST(Layout, HidesNoIdleTimeWhereFoldingViewersDo) {
  Trace trace = one_f_one_b_trace(64, 500);
  const TraceIndex index(trace);
  const std::int64_t span = trace.step().value;
  constexpr std::int64_t kWidth = 1500, kFoldPx = 3;
  std::int64_t idle = 0, hidden_by_folding = 0, hidden_here = 0;
  Frame frame;
  layout(index, {.begin = trace.begin, .end = trace.end, .width_px = kWidth},
         shown_lanes(index, 0, 64, false), frame);
  for (const LaneFrame& lane : frame.lanes) {
    std::int64_t busy = 0;
    for (const auto& [kind, time] :
         true_time(trace, lane.lane, trace.begin.value, trace.end.value)) {
      busy += time;
    }
    idle += span - busy;
    std::int64_t drawn = 0;
    for (const auto& [kind, time] : drawn_time(frame, lane, false)) drawn += time;
    hidden_here += drawn - busy;  // busy colour drawn where there was none
    // Folding: a run of narrow ops whose ends are less than 3 px apart is one solid bar.
    const LaneItems& items = index.lane(lane.lane).items;
    for (std::int32_t i = 0; i < items.count;) {
      const auto narrow = [&](std::int64_t time) { return time * kWidth < kFoldPx * span; };
      if (!narrow(items.end(i) - items.start(i))) {
        ++i;
        continue;
      }
      std::int32_t j = i + 1;
      while (j < items.count && narrow(items.end(j) - items.end(j - 1))) {
        hidden_by_folding += items.start(j) - items.end(j - 1);
        ++j;
      }
      i = j;
    }
  }
  EXPECT_EQ(hidden_here, 0);
  EXPECT_GT(hidden_by_folding, idle / 10);
}

TEST(Layout, BoxesOfALaneNeverOverlap) {
  Trace trace = random_trace(4, 500, 11);
  fill_idle(trace);
  const TraceIndex index(trace);
  Frame frame;
  layout(index,
         {.begin = trace.begin,
          .end = {trace.begin.value + trace.step().value / 20},
          .width_px = 1600},
         shown_lanes(index, 0, 4, true), frame);
  for (const LaneFrame& lane : frame.lanes) {
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (const Box& box : frame.boxes_of(lane)) spans.emplace_back(box.begin, box.end);
    std::ranges::sort(spans);
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first);
    EXPECT_FALSE(spans.empty());
  }
}

TEST(Layout, HitTestInvertsIt) {
  Trace trace = random_trace(4, 300, 5);
  fill_idle(trace);
  const TraceIndex index(trace);
  Frame frame;
  const View view{
      .begin = trace.begin, .end = {trace.begin.value + trace.step().value / 10}, .width_px = 1600};
  layout(index, view, shown_lanes(index, 0, 4, true), frame);
  int boxes = 0;
  for (const LaneFrame& lane : frame.lanes) {
    for (const Box& box : frame.boxes_of(lane)) {
      const double middle = (view.x_of(box.begin) + view.x_of(box.end)) / 2;
      const std::int64_t time = view.time_at(middle);
      if (box.idle) {
        EXPECT_EQ(idle_at(index, lane.lane / trace.slots, time), box.item);
        EXPECT_FALSE(op_at(index, lane.lane, time));
      } else {
        EXPECT_EQ(op_at(index, lane.lane, time), OpId{box.item});
      }
      ++boxes;
    }
  }
  EXPECT_GT(boxes, 100);
}

// A pan by whole grid columns moves the columns and changes none of them.
TEST(Layout, APanDoesNotShimmer) {
  const Trace trace = random_trace(2, 20000, 3);
  const TraceIndex index(trace);
  const auto lanes = shown_lanes(index, 0, 2, true);
  Frame here, there;
  const std::int64_t width = 1000, column = 1024;  // 1024 ns columns of 1 px, on the grid
  const std::int64_t begin = trace.begin.value + 64 * column, shift = 37;
  const auto view = [&](std::int64_t from) {
    return View{.begin = {from}, .end = {from + width * column}, .width_px = width, .snap = true};
  };
  layout(index, view(begin), lanes, here);
  layout(index, view(begin + shift * column), lanes, there);
  ASSERT_EQ(here.num_columns(), static_cast<std::size_t>(width));
  int compared = 0;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    ASSERT_TRUE(here.lanes[l].ops.any && there.lanes[l].ops.any);
    for (std::size_t c = static_cast<std::size_t>(shift); c < static_cast<std::size_t>(width);
         ++c) {
      EXPECT_TRUE(std::ranges::equal(here.column(here.lanes[l].ops, c),
                                     there.column(there.lanes[l].ops, c - shift)));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * (1000 - 37));
}

}  // namespace
}  // namespace rehearse::viz
