// SPDX-License-Identifier: Apache-2.0
// Many ranks and two traces: a heat map's cells are exact, the worst rank of a cell is found; who
// waited for whom adds up; a lag is what the ops' ends differ by.
#include <gtest/gtest.h>

#include <random>

#include "tests/viz/picture/full_trace.h"
#include "viz/analysis/bubble.h"
#include "viz/analysis/ranks/classes.h"
#include "viz/analysis/ranks/heat.h"
#include "viz/analysis/ranks/waited.h"
#include "viz/analysis/two/lag.h"

namespace rehearse::viz {
namespace {

// Time of [begin, end) that a rank of a row idles, op by op: what cells must add up to. Waits
// inside ops are spread evenly over them.
double idle_within(const Trace& trace, std::int32_t row, std::int64_t begin, std::int64_t end) {
  auto idle = static_cast<double>(std::max<std::int64_t>(
      0, std::min(end, trace.end.value) - std::max(begin, trace.begin.value)));
  for (auto i = static_cast<std::size_t>(trace.row_begin[static_cast<std::size_t>(row)]);
       i < static_cast<std::size_t>(trace.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
    if (trace.class_of({static_cast<std::int32_t>(i)}).slot != 0) continue;
    const std::int64_t inside = std::min(end, trace.end_ns[i]) - std::max(begin, trace.start_ns[i]);
    if (inside <= 0) continue;
    const auto whole = static_cast<double>(trace.end_ns[i] - trace.start_ns[i]);
    const double waits =
        trace.communicating_ns.empty() ? 0 : static_cast<double>(trace.communicating_ns[i]);
    idle -= static_cast<double>(inside) * (1 - waits / whole);
  }
  return idle;
}

double caused_within(const Trace& trace, std::int32_t row, IdleCause cause, std::int64_t begin,
                     std::int64_t end) {
  double sum = 0;
  for (std::int64_t i = trace.idle_begin[static_cast<std::size_t>(row)];
       i < trace.idle_begin[static_cast<std::size_t>(row) + 1]; ++i) {
    const IdleSpan& span = trace.idle[static_cast<std::size_t>(i)];
    if (span.cause != cause) continue;
    sum += static_cast<double>(
        std::max<std::int64_t>(0, std::min(end, span.end) - std::max(begin, span.begin)));
  }
  return sum;
}

// Columns of 2^shift ns from the step's begin, cut by the view; or so many equal ones.
std::vector<std::int64_t> edges_of(std::int64_t begin, std::int64_t end, std::int64_t columns,
                                   int shift) {
  std::vector<std::int64_t> edges{begin};
  if (shift >= 0) {
    for (std::int64_t e = (begin >> shift << shift) + (std::int64_t{1} << shift); e < end;
         e += std::int64_t{1} << shift)
      edges.push_back(e);
  } else {
    for (std::int64_t c = 1; c < columns; ++c) edges.push_back(begin + (end - begin) * c / columns);
  }
  edges.push_back(end);
  return edges;
}

// Of 1,000 random views of four traces (with waits inside ops, with causes, without, of rows that
// stand for eight ranks) and any number of bands every cell is the exact time of its ranks, and its
// worst that of one rank.
TEST(Heat, CellsAreExactIntegrals) {
  std::vector<Trace> traces;
  traces.push_back(fixture::full_trace(4, 9));
  traces.push_back(fixture::replicas_trace(3, 7, 5, 2, {.forward = 1003, .backward = 1999}));
  attribute_idle(traces.back());
  traces.push_back(fixture::random_trace(13, 60, 5));
  traces.push_back(fixture::full_trace(5, 4));
  traces.back().communicating_ns = {};
  std::mt19937 random(11);
  std::int64_t cells = 0, whole = 0;
  for (int view = 0; view < 1000; ++view) {
    const Trace& trace = traces[static_cast<std::size_t>(view % 4)];
    const TraceIndex index(trace);
    const HeatSource source(index);
    const auto step = static_cast<std::uint64_t>(trace.step().value);
    const std::int64_t begin = trace.begin.value + static_cast<std::int64_t>(random() % step);
    const std::int64_t end =
        std::min(trace.end.value, begin + 1 + static_cast<std::int64_t>(random() % step));
    const std::int64_t columns =
        std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % 40), end - begin);
    const int shift = view % 3 == 0 ? 5 + static_cast<int>(random() % 8) : -1;
    auto of = static_cast<HeatOf>(random() % kNumHeats);
    if (of == kHeatExcess || !source.has(of)) of = kHeatIdle;
    const auto bands = static_cast<std::int32_t>(1 + random() % 24);
    const HeatTable table = source.table(of, edges_of(begin, end, columns, shift), bands);
    std::int64_t ranks = 0;
    for (std::size_t b = 0; b < table.bands.size(); ++b) {
      const HeatBand& band = table.bands[b];
      EXPECT_EQ(band.first, ranks);
      ranks = band.last;
      double sum = 0;
      for (std::size_t c = 0; c < table.columns(); ++c) {
        double time = 0, worst = 0;
        for (std::int64_t rank = band.first; rank < band.last; ++rank) {
          const std::int32_t row = source.row_of(rank);
          const double one = of == kHeatIdle
                                 ? idle_within(trace, row, table.edges[c], table.edges[c + 1])
                                 : caused_within(trace, row, static_cast<IdleCause>(of - 1),
                                                 table.edges[c], table.edges[c + 1]);
          time += one;
          worst = std::max(worst, one);
        }
        const double found = table.time[b * table.columns() + c];
        if (of != kHeatIdle || trace.communicating_ns.empty()) {
          ASSERT_EQ(found, time) << view;
          ASSERT_EQ(table.worst[b * table.columns() + c], worst) << view;
        } else {
          ASSERT_NEAR(found, time, 1e-6 * std::max(1.0, time)) << view;
          ASSERT_NEAR(table.worst[b * table.columns() + c], worst, 1e-6 * std::max(1.0, worst));
        }
        sum += found;
        ++cells;
        whole += worst == table.width(c) ? 1 : 0;
      }
      EXPECT_NEAR(band.time, sum, 1e-6 * std::max(1.0, sum));
    }
    EXPECT_EQ(ranks, source.ranks());
  }
  EXPECT_GT(cells, 50'000);
  EXPECT_GT(whole, 1000);  // runs of full columns are counted at their ends: some must be there
}

// What the whole map says is what the legend says: idle time over all ranks.
TEST(Heat, IsTheSummarysIdleTime) {
  const Trace trace = fixture::full_trace(4, 9);
  const TraceIndex index(trace);
  const HeatSource source(index);
  const Summary sum = summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows());
  double idle = 0;
  const HeatTable table =
      source.table(kHeatIdle, edges_of(trace.begin.value, trace.end.value, 50, -1), 6);
  for (const HeatBand& band : table.bands) idle += band.time;
  EXPECT_NEAR(idle, static_cast<double>(sum.idle()), 1e-6 * idle);
  EXPECT_EQ(source.ranks(), sum.ranks);
}

// Of long traces inner columns are read from a grid, at any zoom: as op by op, to a millionth.
TEST(Heat, ExcessFromTheGridIsThatOfTheOps) {
  Trace trace = fixture::replicas_trace(3, 40, 5, 2, {.forward = 1003, .backward = 1999});
  const TraceIndex index(trace);
  const HeatSource ops(index), grid(index, 0);
  std::mt19937 random(17);
  const std::int64_t begin = trace.begin.value, end = trace.end.value;
  int compared = 0;
  for (int view = 0; view < 400; ++view) {
    const std::int64_t from = begin + static_cast<std::int64_t>(random() % 60'000),
                       to = std::min(end,
                                     from + 3'000 + static_cast<std::int64_t>(random() % 120'000));
    if (from >= to) continue;
    const std::vector<std::int64_t> edges = edges_of(from, to, 0, 5 + view % 7);
    const auto bands = static_cast<std::int32_t>(1 + random() % 15);
    const HeatTable a = ops.table(kHeatExcess, edges, bands),
                    b = grid.table(kHeatExcess, edges, bands);
    ASSERT_EQ(a.time.size(), b.time.size());
    for (std::size_t i = 0; i < a.time.size(); ++i) {
      const double width = a.width(i % a.columns());
      ASSERT_NEAR(a.time[i], b.time[i], 1e-6 * width * 15) << view;
      ASSERT_NEAR(a.worst[i], b.worst[i], 1e-6 * width) << view;
      ++compared;
    }
    for (std::size_t band = 0; band < a.bands.size(); ++band) {
      ASSERT_NEAR(a.bands[band].time, b.bands[band].time, 1e-6 * a.span() * 15);
      ASSERT_NEAR(a.bands[band].worst, b.bands[band].worst, 1e-6 * a.span());
    }
  }
  EXPECT_GT(compared, 10'000);
}

// Three replicas of two positions, whose forwards take 10; those of the middle one take 15: a third
// of each of its forwards is beyond the median. Nobody else's.
TEST(Heat, ExcessIsTimeBeyondTheMedianOfEqualRanks) {
  const std::int32_t m = 6;
  const Trace trace = fixture::replicas_trace(2, m, 3, 1, {.forward = 1000, .backward = 2000});
  const TraceIndex index(trace);
  const HeatSource source(index);
  ASSERT_TRUE(source.has(kHeatExcess));
  const HeatTable table =
      source.table(kHeatExcess, edges_of(trace.begin.value, trace.end.value, 40, -1), 6);
  ASSERT_EQ(table.bands.size(), 6u);
  for (std::size_t b = 0; b < 6; ++b) {
    const bool slow = b == 2 || b == 3;
    EXPECT_NEAR(table.bands[b].time, slow ? 500.0 * m : 0, 1e-2) << b;
  }
  const HeatTable all = source.table(kHeatExcess, table.edges, 1);
  EXPECT_NEAR(all.bands[0].worst, 500.0 * m, 1e-2);
  EXPECT_EQ(all.bands[0].worst_row / 2, 1);
  EXPECT_EQ(source.table(kHeatExcess, table.edges, 9, {3, 5}).bands.size(), 2u);
  EXPECT_EQ(source.ranks_text(0, 6), "ranks 0 to 5");
  EXPECT_EQ(source.ranks_text(2, 3), "rank 2");
  EXPECT_FALSE(HeatSource(TraceIndex(fixture::full_trace())).has(kHeatExcess));
}

// Five replicas of three positions, the third of them slow: it stands for each class.
TEST(RankClasses, AreToldByTheirSlowest) {
  const Trace trace = fixture::replicas_trace(3, 4, 5, 2);
  const RankClasses classes(trace);
  ASSERT_TRUE(classes.have_rows());
  ASSERT_TRUE(classes.any());
  for (std::int32_t row = 0; row < 15; ++row) {
    EXPECT_EQ(classes.first(row), row % 3);
    EXPECT_EQ(classes.slowest(row), 6 + row % 3);
    EXPECT_EQ(classes.ranks(row), 5);
  }
  EXPECT_EQ(classes.class_name(1), "rank 7, slowest of 5");
}

// Rows of eight ranks each, from rank 8 r on: numbers are known. Where the second row begins at
// rank 1, they interleave in a way that a trace does not say.
TEST(RankClasses, RanksOfAPredictionAreNumberedWhereTheyFollowOneAnother) {
  Trace trace = fixture::full_trace(3, 4);
  EXPECT_EQ(RankClasses(trace).name(1, -1), "rank 8 (x8)");
  EXPECT_EQ(RankClasses(trace).name(1, 3), "rank 11");
  std::vector<TraceRow> rows(trace.rows.begin(), trace.rows.end());
  rows[1].first_rank = {1};
  trace.rows = std::move(rows);
  EXPECT_EQ(RankClasses(trace).name(1, 3), "rank 1 (4 of 8)");
  EXPECT_FALSE(RankClasses(trace).have_rows());
}

// Every bubble that a transfer or an op of another rank ends is counted once, for one rank.
TEST(WaitedFor, AddsUpToTheBubblesThatOthersEnded) {
  Trace trace = fixture::replicas_trace(4, 6, 2, 1);
  attribute_idle(trace);
  const Causality causes(trace);
  std::int64_t expected = 0, bubbles = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace.idle.size());) {
    const Bubble bubble = bubble_at(trace, causes, i);
    i = bubble.last;
    if (!bubble.op || !bubble.wait.source ||
        trace.row_of(bubble.wait.source) == trace.row_of(bubble.op)) {
      continue;
    }
    ++bubbles;
    for (std::size_t c = 0; c < kNumIdleCauses; ++c)
      expected += WaitedFor::counts(c) ? bubble.causes[c] : 0;
  }
  const std::vector<WaitedFor> ranks = waited_for_ranks(trace, causes);
  ASSERT_FALSE(ranks.empty());
  std::int64_t time = 0, count = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    time += ranks[i].time();
    count += ranks[i].bubbles;
    EXPECT_GE(ranks[i == 0 ? 0 : i - 1].time(), ranks[i].time());
    if (!ranks[i].op) continue;
    EXPECT_EQ(trace.row_of(ranks[i].op), ranks[i].row);
    EXPECT_NE(trace.row_of(ranks[i].waiter), ranks[i].row);
    EXPECT_GT(ranks[i].longest, 0);
    EXPECT_LE(ranks[i].longest, ranks[i].time());
  }
  EXPECT_EQ(time, expected);
  EXPECT_EQ(count, bubbles);
  EXPECT_GT(bubbles, 20);
}

TEST(WaitedFor, ATraceWithoutWaitsSaysNothing) {
  const Trace trace = fixture::random_trace(3, 20, 1);
  EXPECT_FALSE(knows_waits(trace));
  EXPECT_TRUE(waited_for_ranks(trace, Causality(trace)).empty());
}

// At any time the lag of b is what the last op that ended in b is later than in a, from the steps'
// begins; over any range the extremes of these.
TEST(Lag, IsWhatTheEndsOfOpsDifferBy) {
  const Trace a = fixture::one_f_one_b_trace(3, 8, {.forward = 1000, .backward = 2000}),
              b = fixture::one_f_one_b_trace(3, 8, {.forward = 1100, .backward = 1900});
  std::vector<OpId> same;
  for (OpId op{0}; op.value < b.num_ops(); ++op.value) same.push_back(op);
  std::mt19937 random(3);
  for (std::int32_t row = 0; row < 3; ++row) {
    const LagCurve lag(a, b, same, {row});
    ASSERT_FALSE(lag.empty());
    EXPECT_LT(lag.whole().least, lag.whole().most);
    for (int i = 0; i < 200; ++i) {
      const auto begin =
          static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(b.end.value));
      const std::int64_t end = begin + 1 + static_cast<std::int64_t>(random() % 4000);
      std::int64_t held = 0, least = 0, most = 0;
      bool known = false;
      const auto take = [&](std::int64_t value) {
        least = known ? std::min(least, value) : value;
        most = known ? std::max(most, value) : value;
        known = true;
      };
      for (std::int64_t op = b.row_begin[static_cast<std::size_t>(row)];
           op < b.row_begin[static_cast<std::size_t>(row) + 1]; ++op) {
        const auto k = static_cast<std::size_t>(op);
        if (b.class_of({static_cast<std::int32_t>(op)}).slot != 0) continue;
        const std::int64_t value = (b.end_ns[k] - b.begin.value) - (a.end_ns[k] - a.begin.value);
        if (b.end_ns[k] <= begin) {
          held = value;
          known = false;
          take(value);
        } else if (b.end_ns[k] < end) {
          take(value);
        }
      }
      EXPECT_EQ(lag.at(begin), held);
      const LagCurve::Range range = lag.over(begin, end);
      ASSERT_EQ(range.known, known);
      if (!known) continue;
      EXPECT_EQ(range.least, least);
      EXPECT_EQ(range.most, most);
    }
  }
}

TEST(Lag, WhatBeginsTogether) {
  Trace a = fixture::one_f_one_b_trace(2, 3), b = fixture::one_f_one_b_trace(2, 3);
  b.begin.value = a.begin.value - 40;  // b's clock began earlier
  const OpId op{3};
  EXPECT_EQ(origin_of_second(a, b, Align::Step, {}, {}), b.begin.value);
  EXPECT_EQ(origin_of_second(a, b, Align::Wall, {}, {}), a.begin.value);
  const std::int64_t origin = origin_of_second(a, b, Align::Op, op, op);
  EXPECT_EQ(b.start_ns[op.index()] - origin, a.start_ns[op.index()] - a.begin.value);
}

}  // namespace
}  // namespace rehearse::viz
