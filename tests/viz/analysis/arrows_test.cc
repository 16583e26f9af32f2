// SPDX-License-Identifier: Apache-2.0
// Arrows are the matches of the schedule; a step timed anew is the step.
#include "viz/analysis/arrows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/engine/program.h"
#include "sim/engine/sweep.h"
#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"
#include "tests/viz/picture/pipeline_fixture.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/retime.h"

namespace rehearse::viz {
namespace {

struct Predicted {
  Schedule schedule;
  sim::CostTable costs;
  Trace trace;
};
Predicted predicted(const std::string& scenario, const std::vector<std::string>& changes = {}) {
  const Result<Scenario> read =
      read_scenario("scenarios/" + scenario + ".json", {.overrides = changes});
  EXPECT_TRUE(read) << read.error().message;
  const Result<sim::Cluster> cluster = sim::read_cluster(read.value().cluster);
  EXPECT_TRUE(cluster) << cluster.error().message;
  Result<sim::Prediction> p = sim::predict(read.value(), cluster.value());
  EXPECT_TRUE(p) << p.error().message;
  Trace trace = sim::predicted_trace(p.value(), read.value(), cluster.value());
  return {std::move(p.value().schedule), std::move(p.value().pricing.table), std::move(trace)};
}
Predicted small(const std::string& schedule, const std::string& chunks) {
  return predicted("tiny-gpt-4-ranks",
                   {"plan.runtime=rehearse", "plan.tensor_parallel=1", "plan.pipeline_parallel=4",
                    "plan.schedule=" + schedule, "plan.virtual_stages=" + chunks});
}

// From the schedule alone: who sends to whom, and who meets.
void expect_the_matches(const Schedule& schedule, const Trace& trace) {
  std::map<std::int32_t, std::vector<std::int32_t>> met;  // by match
  for (std::int32_t op = 0; op < static_cast<std::int32_t>(schedule.ops.size()); ++op) {
    const MatchId match = schedule.ops[static_cast<std::size_t>(op)].match;
    if (match) met[match.value].push_back(op);
  }
  std::set<std::pair<std::int32_t, std::int32_t>> sends;
  std::size_t meetings = 0;  // arrows between the members of collectives
  for (const auto& [match, ops] : met) {
    const Op& first = schedule.ops[static_cast<std::size_t>(ops[0])];
    if (traits(first.kind).op_class == OpClass::Transfer) {
      ASSERT_EQ(ops.size(), 2u);
      const bool sent_first = first.kind == OpKind::Send;
      sends.emplace(ops[sent_first ? 0 : 1], ops[sent_first ? 1 : 0]);
    } else {
      meetings += ops.size() - 1;
    }
  }
  const Causality causes(trace);
  std::set<std::pair<std::int32_t, std::int32_t>> drawn, drawn_meetings;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    for (const Arrow& arrow : match_arrows(trace, causes, op)) {
      auto& of = arrow.kind == ArrowKind::Transfer ? drawn : drawn_meetings;
      of.emplace(arrow.from.value, arrow.to.value);
      EXPECT_EQ(schedule.ops[arrow.from.index()].match, schedule.ops[arrow.to.index()].match);
      // Both ends say the same.
      const std::vector<Arrow> there = match_arrows(trace, causes, arrow.to);
      EXPECT_NE(std::ranges::find(there, arrow), there.end());
    }
  }
  EXPECT_EQ(drawn, sends);
  EXPECT_EQ(drawn_meetings.size(), meetings);
}

TEST(Arrows, AreTheMatchesOfTheSchedule) {
  for (const auto& [schedule, chunks] :
       {std::pair{"1f1b", "1"}, {"gpipe", "1"}, {"interleaved_1f1b", "2"}, {"zb_h1", "1"},
        {"dualpipe_v", "2"}}) {
    SCOPED_TRACE(schedule);
    const Predicted p = small(schedule, chunks);
    expect_the_matches(p.schedule, p.trace);
  }
  const Predicted whole = predicted("tiny-3d-8");
  expect_the_matches(whole.schedule, whole.trace);
}

// Two positions, one micro-batch: 1F0 waited for 0F0, through a SEND and its RECV.
TEST(Arrows, LeadFromWhatWasWaitedForToTheOp) {
  const Trace trace = fixture::one_f_one_b_trace(2, 1);
  const Causality causes(trace);
  OpId forward;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    if (op_name(trace, op) == "1F0") forward = op;
  }
  std::vector<std::string> drawn;
  for (const Arrow& arrow : arrows_of(trace, causes, forward))
    drawn.push_back(op_name(trace, arrow.from) + " > " + op_name(trace, arrow.to));
  EXPECT_EQ(drawn, (std::vector<std::string>{"0F0 > 0SEND_F0", "0SEND_F0 > 1RECV_F0",
                                             "1RECV_F0 > 1F0"}));
}

// Along the critical path each arrow begins where the one before it ended, or where that one's op
// goes on; ops of one match are joined by an arrow of their own.
TEST(Arrows, AlongTheCriticalPathLeadFromItsBeginToItsEnd) {
  const Predicted p = small("1f1b", "1");
  const Causality causes(p.trace);
  const CriticalPath path = critical_path(p.trace);
  const std::vector<Arrow> arrows = path_arrows(p.trace, causes, path.ops);
  ASSERT_FALSE(arrows.empty());
  EXPECT_EQ(arrows.front().from, path.ops.front());
  EXPECT_EQ(arrows.back().to, path.ops.back());
  std::size_t transfers = 0;
  for (std::size_t i = 0; i + 1 < arrows.size(); ++i) {
    EXPECT_EQ(arrows[i].to, arrows[i + 1].from);
    if (arrows[i].kind != ArrowKind::Transfer) continue;
    ++transfers;
    EXPECT_NE(p.trace.row_of(arrows[i].from), p.trace.row_of(arrows[i].to));
  }
  EXPECT_GE(transfers, 6u);  // forth and back over four positions
}

TEST(Retiming, WithoutAChangeIsTheStep) {
  for (std::int32_t p = 1; p <= 5; ++p) {
    const Trace trace = fixture::one_f_one_b_trace(p, 7);
    const Causality causes(trace);
    const Retiming again(trace, causes);
    ASSERT_TRUE(again.possible());
    for (OpId op{0}; op.value < trace.num_ops(); op.value += 5) {
      EXPECT_EQ(again.step_if(op, 1), trace.step().value);
      EXPECT_EQ(again.step_if_all_like(op, 1), trace.step().value);
    }
  }
  const Predicted p = small("interleaved_1f1b", "2");
  const Causality causes(p.trace);
  EXPECT_EQ(Retiming(p.trace, causes).step_if({0}, 1), p.trace.step().value);
}

// The engine runs the same schedule again with an op, or all ops of its kind and stage, a fifth
// shorter: the same step, to the last nanosecond. Nothing is shared here, and no host is late.
TEST(Retiming, IsWhatTheEngineSaysOfTheScheduleRunAgain) {
  for (const auto& [order, chunks] :
       {std::pair{"1f1b", "1"}, {"gpipe", "1"}, {"interleaved_1f1b", "2"}, {"zb_h1", "1"}}) {
    SCOPED_TRACE(order);
    const Predicted p = small(order, chunks);
    sim::CostTable table = p.costs;
    for (sim::Cost& cost : table.costs) {
      cost.host = {};
      cost.slowdown = 0;
      cost.demand_end = cost.demand_begin;
    }
    const sim::Program program = sim::compile(p.schedule);
    const sim::Timeline timeline = std::move(sim::sweep(program, table)).value();
    const Trace trace = make_trace(p.schedule, timeline.start, timeline.end);
    const Causality causes(trace);
    const Retiming retiming(trace, causes);
    ASSERT_TRUE(retiming.possible());
    // The step of the same program with other costs of the chosen ops.
    const auto again = [&](const auto& chosen) {
      sim::CostTable changed = table;
      for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
        if (!chosen(op)) continue;
        sim::Cost cost = table.cost(op);
        cost.time = Nanoseconds{std::llround(static_cast<double>(cost.time.value) * 0.8)};
        changed.of_op[op.index()] = static_cast<std::int32_t>(changed.costs.size());
        changed.costs.push_back(cost);
      }
      const sim::Timeline run = std::move(sim::sweep(program, changed)).value();
      return (*std::ranges::max_element(run.end) - *std::ranges::min_element(run.start)).value;
    };
    int shorter = 0;
    for (OpId op{0}; op.value < trace.num_ops(); op.value += 3) {
      if (!is_compute(trace.class_of(op).kind)) continue;
      const std::int64_t alone = retiming.step_if(op, 0.8);
      ASSERT_EQ(alone, again([&](OpId other) { return other == op; })) << op_name(trace, op);
      shorter += alone < trace.step().value;
      ASSERT_EQ(retiming.step_if_all_like(op, 0.8),
                again([&](OpId other) { return retiming.alike(op, other); }))
          << op_name(trace, op);
    }
    EXPECT_GT(shorter, 2);
  }
}

// An op with slack changes nothing, the last op of the path all that it is shorter.
TEST(Retiming, AnOpOfTheCriticalPathCounts) {
  const Trace trace = fixture::one_f_one_b_trace(3, 4);
  const Causality causes(trace);
  const Retiming retiming(trace, causes);
  const CriticalPath path = critical_path(trace);
  const OpId last = path.ops.back();
  const std::int64_t lasts = trace.end_ns[last.index()] - trace.start_ns[last.index()];
  // Other positions end later or together: their optimizers hold the step.
  EXPECT_LE(retiming.step_if(last, 0.5), trace.step().value);
  EXPECT_GE(retiming.step_if(last, 0.5), trace.step().value - lasts);
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const std::int64_t slack = path.slack[op.index()];
    const std::int64_t took = trace.end_ns[op.index()] - trace.start_ns[op.index()];
    if (took == 0) continue;
    // Longer by no more than its slack: nobody notices. By more: the step is longer by the rest.
    const double all = static_cast<double>(took + slack) / static_cast<double>(took);
    EXPECT_EQ(retiming.step_if(op, all), trace.step().value) << op_name(trace, op);
    const double more = static_cast<double>(took + slack + 50) / static_cast<double>(took);
    EXPECT_EQ(retiming.step_if(op, more), trace.step().value + 50) << op_name(trace, op);
  }
}

TEST(Retiming, RefusesWaitsThatGoInACircle) {
  Trace trace = fixture::one_f_one_b_trace(1, 2);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(trace.num_ops()) + 1, 2);
  begin[0] = 0;
  begin[1] = 1;
  trace.wait_begin = std::move(begin);
  trace.waits = std::vector<std::int32_t>{1, 0};
  const Causality causes(trace);
  EXPECT_FALSE(Retiming(trace, causes).possible());
}

}  // namespace
}  // namespace rehearse::viz
