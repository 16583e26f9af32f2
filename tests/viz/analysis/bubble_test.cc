// SPDX-License-Identifier: Apache-2.0
// A bubble is one thing: its parts, and whom it waited for.
#include "viz/analysis/bubble.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/viz/picture/full_trace.h"

namespace rehearse::viz {
namespace {

using fixture::one_f_one_b_trace;

TEST(Bubble, HoldsAllIdleSpansBetweenTwoOps) {
  for (std::int32_t p = 2; p <= 6; ++p) {
    Trace trace = one_f_one_b_trace(p, 9);
    attribute_idle(trace);
    const Causality causes(trace);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace.idle.size()); ++i) {
      const Bubble bubble = bubble_at(trace, causes, i);
      EXPECT_LE(bubble.first, i);
      EXPECT_GT(bubble.last, i);
      EXPECT_EQ(std::accumulate(bubble.causes.begin(), bubble.causes.end(), std::int64_t{0}),
                bubble.end - bubble.begin);
      EXPECT_EQ(bubble.op, trace.idle[static_cast<std::size_t>(i)].op);
      // Its neighbours are ops: whatever span it is asked for, it is the same bubble.
      const Bubble same = bubble_at(trace, causes, bubble.first);
      EXPECT_EQ(same.begin, bubble.begin);
      EXPECT_EQ(same.end, bubble.end);
      if (!bubble.op) continue;
      EXPECT_EQ(trace.start_ns[bubble.op.index()], bubble.end);
      EXPECT_EQ(trace.row_of(bubble.op), bubble.row);
    }
  }
}

// Two positions, one micro-batch (analysis_test.cc): row 0 waits 10-46 for row 1's backward, which
// comes by a transfer; that is one bubble, of 6 communication and 30 dependency.
TEST(Bubble, NamesTheRankThatWasWaitedFor) {
  Trace trace =
      one_f_one_b_trace(2, 1, {.forward = 10, .backward = 20, .transfer = 3, .optimizer = 0});
  attribute_idle(trace);
  const Causality causes(trace);
  const Bubble bubble = bubble_at(trace, causes, static_cast<std::int32_t>(trace.idle_begin[0]));
  EXPECT_EQ(bubble.begin, 10);
  EXPECT_EQ(bubble.end, 46);
  EXPECT_EQ(bubble.causes[static_cast<std::size_t>(IdleCause::Communication)], 6);
  EXPECT_EQ(bubble.causes[static_cast<std::size_t>(IdleCause::Dependency)], 30);
  EXPECT_EQ(op_name(trace, bubble.op), "0B0");
  EXPECT_EQ(op_name(trace, bubble.wait.source), "1B0");
  EXPECT_EQ(trace.row_of(bubble.wait.source), RankClass{1});
  EXPECT_EQ(op_name(trace, bubble.wait.sent), "1SEND_B0");
  EXPECT_EQ(op_name(trace, bubble.wait.via), "0RECV_B0");
}

// In every pipeline a rank waits for one of its neighbours; at the step's end for who ends last.
TEST(Bubble, OfAPipelineWaitsForANeighbour) {
  Trace trace = one_f_one_b_trace(5, 12);
  attribute_idle(trace);
  const Causality causes(trace);
  std::int32_t named = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace.idle.size()); ++i) {
    const Bubble bubble = bubble_at(trace, causes, i);
    ASSERT_TRUE(bubble.wait.source);
    const std::int32_t other = trace.row_of(bubble.wait.source).value;
    if (!bubble.op) {
      EXPECT_EQ(trace.end_ns[bubble.wait.source.index()], trace.end.value);
      continue;
    }
    if (trace.class_of(bubble.op).kind == OpKind::OptimizerStep) continue;
    EXPECT_EQ(std::abs(other - bubble.row.value), 1) << op_name(trace, bubble.op);
    ++named;
  }
  EXPECT_GT(named, 10);
}

}  // namespace
}  // namespace rehearse::viz
