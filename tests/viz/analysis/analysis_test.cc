// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/analysis.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/viz/picture/full_trace.h"
#include "viz/picture/layout.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using fixture::one_f_one_b_trace;
using fixture::random_trace;

std::int64_t sum(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

// busy + idle = span * ranks for every row and range, and the causes are all of the idle time.
TEST(Summary, PartsAddUpToTheStep) {
  for (std::int32_t p = 1; p <= 6; ++p) {
    const Trace trace = full_trace(p, 7);
    const TraceIndex index(trace);
    for (std::int32_t row = 0; row <= p; ++row) {
      for (const std::int64_t cut : {0, 333, 5001}) {
        const Summary all = summarize(index, cut, trace.end.value - cut, row == p ? 0 : row,
                                      row == p ? p : row + 1);
        EXPECT_EQ(all.ranks, 8 * (row == p ? p : 1));
        EXPECT_EQ(all.busy() + all.idle(), all.total());
        EXPECT_EQ(sum(all.kinds) + sum(all.causes) + all.unexplained, all.total());
        EXPECT_EQ(all.unexplained, 0);
      }
    }
  }
}

// (p - 1)(F + B) / (m (F + B) + (p - 1)(F + B)): 1F1B's bubble ratio where transfers take no time.
TEST(Summary, BubbleRatioOfOneForwardOneBackward) {
  const Trace trace =
      one_f_one_b_trace(4, 8, {.forward = 1000, .backward = 2000, .transfer = 0, .optimizer = 0});
  const TraceIndex index(trace);
  const Summary all = summarize(index, trace.begin.value, trace.end.value, 0, 4);
  EXPECT_DOUBLE_EQ(all.bubble_ratio(), 3.0 / 11.0);
}

// A prediction knows how long ops wait for their own collectives; of a measurement that time is
// busy. What lies between ops is the same in both.
TEST(Summary, IdlenessBetweenOpsIsWhatEveryTraceKnows) {
  Trace trace = full_trace(4, 8);
  const auto whole = [&] {
    return summarize(TraceIndex(trace), trace.begin.value, trace.end.value, 0, 4);
  };
  const Summary predicted = whole();
  EXPECT_GT(predicted.inside_ops(), 0);
  EXPECT_EQ(predicted.between_ops() + predicted.inside_ops(), predicted.idle());
  EXPECT_FALSE(predicted.inside_unknown);
  EXPECT_NE(bubbles_text(predicted).find(" inside ops"), std::string::npos);
  trace.communicating_ns = {};
  const Summary without = whole();
  EXPECT_EQ(without.between_ops(), predicted.between_ops());
  EXPECT_EQ(without.inside_ops(), 0);
  EXPECT_FALSE(without.inside_unknown);  // no op has collectives inside
  trace.nodes = std::vector<TraceNode>{{.collective = 1}};
  EXPECT_TRUE(whole().inside_unknown);
  EXPECT_NE(bubbles_text(whole()).find("not measured"), std::string::npos);
}

TEST(AttributeIdle, EveryGapHasOneCause) {
  Trace trace = one_f_one_b_trace(5, 9);
  attribute_idle(trace);
  const TraceIndex index(trace);
  for (std::int32_t row = 0; row < 5; ++row) {
    std::int64_t busy = 0;
    for (std::int64_t op = trace.row_begin[static_cast<std::size_t>(row)];
         op < trace.row_begin[static_cast<std::size_t>(row) + 1]; ++op) {
      const auto i = static_cast<std::size_t>(op);
      if (trace.class_of({static_cast<std::int32_t>(op)}).slot == 0)
        busy += trace.end_ns[i] - trace.start_ns[i];
    }
    std::int64_t idle = 0, free = 0;
    for (std::int64_t s = trace.idle_begin[static_cast<std::size_t>(row)];
         s < trace.idle_begin[static_cast<std::size_t>(row) + 1]; ++s) {
      const IdleSpan& span = trace.idle[static_cast<std::size_t>(s)];
      EXPECT_GE(span.begin, free);
      EXPECT_GT(span.end, span.begin);
      EXPECT_FALSE(op_at(index, row * trace.slots, span.begin));
      free = span.end;
      idle += span.end - span.begin;
    }
    EXPECT_EQ(busy + idle, trace.step().value);
  }
}

// Two positions, one micro-batch: F0 [0,10), transfer [10,13), F1 [13,23), B1 [23,43), transfer
// [43,46), B0 [46,66). Row 0 waits 10-46: 3 for each transfer, 30 for row 1's work. Row 1 fills
// until 13 and drains from 43.
TEST(AttributeIdle, NamesTheCausesOfASmallPipeline) {
  Trace trace =
      one_f_one_b_trace(2, 1, {.forward = 10, .backward = 20, .transfer = 3, .optimizer = 0});
  attribute_idle(trace);
  const TraceIndex index(trace);
  const Summary first = summarize(index, 0, 66, 0, 1), second = summarize(index, 0, 66, 1, 2);
  const auto cause = [](const Summary& of, IdleCause c) {
    return of.causes[static_cast<std::size_t>(c)];
  };
  EXPECT_EQ(cause(first, IdleCause::Communication), 6);
  EXPECT_EQ(cause(first, IdleCause::Dependency), 30);
  EXPECT_EQ(cause(second, IdleCause::Warmup), 13);
  EXPECT_EQ(cause(second, IdleCause::Cooldown), 23);
}

TEST(AttributeIdle, ASlowOpIsAStragglerAsFarAsItIsSlow) {
  fixture::Timed timed =
      fixture::one_f_one_b(2, 4, {.forward = 10, .backward = 20, .transfer = 0, .optimizer = 0});
  // The first backward of row 1 takes 20; all that follows comes 7 later: it took 27.
  std::size_t slow = 0;
  for (std::size_t i = 0; i < timed.schedule.ops.size(); ++i) {
    if (timed.schedule.ops[i] == compute_op(OpKind::Backward, {1}, {0})) slow = i;
  }
  const std::int64_t late = timed.end[slow].value;
  for (std::size_t i = 0; i < timed.start.size(); ++i) {
    if (timed.start[i].value >= late) timed.start[i] += Nanoseconds{7};
    if (timed.end[i].value >= late &&
        !(timed.end[i].value == late && i != slow && timed.start[i].value < late))
      timed.end[i] += Nanoseconds{7};
  }
  Trace trace = make_trace(timed.schedule, timed.start, timed.end);
  attribute_idle(trace);
  const TraceIndex index(trace);
  const Summary first = summarize(index, trace.begin.value, trace.end.value, 0, 1);
  EXPECT_EQ(first.causes[static_cast<std::size_t>(IdleCause::Straggler)], 7);
}

TEST(CriticalPath, CoversTheStepAndHasNoSlack) {
  for (const std::int32_t p : {1, 2, 4, 7}) {
    const Trace trace = one_f_one_b_trace(p, 6);
    const CriticalPath path = critical_path(trace);
    EXPECT_EQ(path.in_ops + path.waiting, trace.step().value);
    ASSERT_FALSE(path.ops.empty());
    EXPECT_EQ(trace.end_ns[path.ops.back().index()], trace.end.value);
    EXPECT_EQ(trace.start_ns[path.ops.front().index()], trace.begin.value);
    for (std::size_t i = 1; i < path.ops.size(); ++i) {
      EXPECT_GE(trace.start_ns[path.ops[i].index()], trace.end_ns[path.ops[i - 1].index()]);
    }
    EXPECT_EQ(path.slack[path.ops.back().index()], 0);
  }
}

// Without an optimizer nothing waits on the path: each op begins when the one before it ends, and
// none of them has slack. A micro-batch's forward that finds its rank busy has some.
TEST(CriticalPath, OfOneForwardOneBackwardIsTight) {
  const Trace trace =
      one_f_one_b_trace(4, 8, {.forward = 10, .backward = 20, .transfer = 1, .optimizer = 0});
  const CriticalPath path = critical_path(trace);
  EXPECT_EQ(path.waiting, 0);
  for (const OpId op : path.ops) EXPECT_EQ(path.slack[op.index()], 0) << op_name(trace, op);
  EXPECT_GT(*std::ranges::max_element(path.slack), 0);
}

TEST(Difference, OfATraceWithItselfIsEmpty) {
  const Trace a = full_trace();
  const Result<TraceDifference> none = difference(a, a);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none.value().empty());
}

TEST(Difference, PutsTheWorstOpFirst) {
  const auto timed = fixture::one_f_one_b(2, 3);
  auto end = timed.end;
  const OpId slow{timed.schedule.num_ops() - 1};
  end[slow.index()] += Nanoseconds{250};  // optimizer of the last row: 500 -> 750
  const Trace a = make_trace(timed.schedule, timed.start, timed.end);
  const Trace b = make_trace(timed.schedule, timed.start, end, {.label = TraceLabel::Measured});
  const Result<TraceDifference> found = difference(a, b);
  ASSERT_TRUE(found);
  ASSERT_EQ(found.value().ops.size(), 1u);
  EXPECT_EQ(found.value().ops[0].op, slow);
  EXPECT_EQ(found.value().ops[0].b - found.value().ops[0].a, 250);
  for (const KindDifference& kind : found.value().kinds) {
    EXPECT_DOUBLE_EQ(kind.mean_abs_error,
                     kind.kind == OpKind::OptimizerStep ? 0.25 : 0.0);  // 0.5, 0
  }
  const Trace other = one_f_one_b_trace(2, 4);
  EXPECT_FALSE(difference(a, other));
}

TEST(Statistics, CountEachOpOnce) {
  const Trace trace = random_trace(3, 400, 9);
  std::int64_t count = 0, total = 0;
  for (const KindStatistics& kind : statistics(trace, 20)) {
    EXPECT_EQ(sum(kind.histogram), kind.count);
    EXPECT_LE(kind.shortest, kind.median);
    EXPECT_LE(kind.median, kind.longest);
    count += kind.count;
    total += kind.total;
  }
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < trace.start_ns.size(); ++i)
    expected += trace.end_ns[i] - trace.start_ns[i];
  EXPECT_EQ(count, trace.num_ops());
  EXPECT_EQ(total, expected);
}

}  // namespace
}  // namespace rehearse::viz
