// SPDX-License-Identifier: Apache-2.0
// A measured trace: a row for every rank, with that rank's times; who is slow is seen in it, and it
// lies beside a prediction and beside traces that hold one rank of each class.
//
// The clock is made up: an op ends when it has taken its time after what it waits for and whom it
// meets; ops that compute take longer on one rank.
#include "cli/trace/step_trace.h"

#include <unistd.h>

#include <cstdio>

#include "cli/run/straggler_report.h"
#include "exec/step/rendezvous_times.h"
#include "schedules/ranks/unfold.h"
#include "schedules/trace/trace_inside.h"
#include "sim/cluster/cluster.h"
#include "tests/exec/step/layouts.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/ranks/stragglers.h"
#include "viz/analysis/two/align.h"
#include "viz/export/export.h"
#include "viz/import/import.h"

namespace rehearse::cli {
namespace {

using exec::Family;

constexpr std::int64_t kWork = 1000, kOther = 10;  // [ns] of an op

struct Made {
  Scenario scenario;
  Schedule schedule;
  std::vector<Nanoseconds> start, end;  // as Interpreter::start() has them

  Trace trace() const { return step_trace(scenario, schedule, start, end, "made up"); }
};

bool works(const Op& op) {
  const OpClass kind = traits(op.kind).op_class;
  return kind == OpClass::Compute || kind == OpClass::Local;
}

// On rank `slow` what computes takes `factor` times as long.
Made run(const std::vector<std::string>& plan, std::int32_t slow, std::int64_t factor) {
  Made out;
  Result<Scenario> scenario = exec::layout_scenario(Family::Gpt2, plan);
  EXPECT_TRUE(scenario) << scenario.error().message;
  out.scenario = std::move(scenario).value();
  Result<Schedule> schedule = exec::lower_for_run(out.scenario.model, out.scenario.plan);
  EXPECT_TRUE(schedule) << schedule.error().message;
  out.schedule = std::move(schedule).value();
  const Schedule all = unfold(out.schedule, out.scenario.plan);
  out.start.resize(all.ops.size());
  out.end.resize(all.ops.size());
  std::vector<std::int64_t> met;  // by match: when the last of those that meet was ready
  // Every edge goes forward in the one global order: rounds until nothing moves.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t r = 0; r < all.num_rows(); ++r) {
      std::array<std::int64_t, kNumStreams> free{};
      for (std::size_t i = all.first_op({r}); i < all.first_op({r + 1}); ++i) {
        const Op& op = all.ops[i];
        std::int64_t& stream = free[static_cast<std::size_t>(op.stream)];
        std::int64_t ready = stream;
        for (const OpId wait : all.waits_of({static_cast<std::int32_t>(i)}))
          ready = std::max(ready, out.end[wait.index()].value);
        std::int64_t begins = ready;
        if (op.match) {
          if (op.match.index() >= met.size()) met.resize(op.match.index() + 1, 0);
          met[op.match.index()] = std::max(met[op.match.index()], ready);
          begins = met[op.match.index()];
        }
        const std::int64_t ends =
            begins + (works(op) ? (r == slow ? factor * kWork : kWork) : kOther);
        moved = moved || out.start[i].value != ready || out.end[i].value != ends;
        out.start[i] = {ready};
        out.end[i] = {ends};
        stream = ends;
      }
    }
  }
  return out;
}

// What was predicted: the same clock without a slow rank, a row for each class.
Trace predicted(const std::vector<std::string>& plan) {
  const Made even = run(plan, -1, 1);
  std::vector<Nanoseconds> start(even.schedule.ops.size()), end(start);
  std::size_t from = 0;
  for (const RankClass row : rows_of_ranks(even.scenario.plan, even.schedule)) {
    const std::size_t first = even.schedule.first_op(row);
    const std::size_t ops = even.schedule.program(row).size();
    for (std::size_t i = 0; i < ops; ++i) {
      start[first + i] = even.start[from + i];
      end[first + i] = even.end[from + i];
    }
    from += ops;
  }
  Trace trace = make_trace(even.schedule, exec::rendezvous_starts(even.schedule, start, end), end,
                           {.rows = trace_rows(even.schedule, even.scenario.plan, 1 << 20)});
  viz::attribute_idle(trace);
  return trace;
}

const std::vector<std::string> kReplicas{"data_parallel=4", "zero_stage=1"};
const std::vector<std::string> kThreeD{"pipeline_parallel=2",    "tensor_parallel=2",
                                       "data_parallel=2",        "schedule=1f1b",
                                       "sequence_parallel=true", "zero_stage=2"};

TEST(StepTrace, FourReplicasAreFourRanksWithTheirOwnTimes) {
  const Made slow = run(kReplicas, 2, 3);
  const Trace trace = slow.trace();
  EXPECT_EQ(trace_fault(trace), "");
  ASSERT_EQ(trace.num_rows(), 4);
  EXPECT_EQ(trace.num_ops(), 4 * slow.schedule.num_ops());
  EXPECT_EQ(trace.schedule_hash, content_hash(slow.schedule));
  std::size_t different = 0;
  for (std::int32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(row_name(trace, {r}), "rank " + std::to_string(r));
    const auto first = static_cast<std::size_t>(trace.row_begin[static_cast<std::size_t>(r)]);
    for (std::size_t i = 0; i < slow.schedule.ops.size(); ++i) {
      if (!works(slow.schedule.ops[i])) continue;
      EXPECT_EQ(trace.end_ns[first + i] - trace.start_ns[first + i], r == 2 ? 3 * kWork : kWork);
      different += trace.end_ns[first + i] != trace.end_ns[i] ? 1U : 0U;
    }
  }
  EXPECT_GT(different, 0U);
}

// Exactly: all ranks compute as many ops, the slow one takes three times as long.
TEST(StepTrace, TheSlowRankIsNamed) {
  for (const auto& plan : {kReplicas, kThreeD}) {
    for (const std::int32_t slow : {0, 1, 3}) {
      const Made made = run(plan, slow, 3);
      const Trace trace = made.trace();
      const auto ranks = static_cast<std::int32_t>(trace.rows.size());
      int found = 0;
      for (const viz::Straggler& one : viz::stragglers(trace)) {
        const std::int32_t position = trace.rows[one.slowest.index()].position.value;
        EXPECT_EQ(one.ranks, ranks / made.scenario.plan.pipeline_parallel);
        if (trace.rows[static_cast<std::size_t>(slow)].position.value != position) {
          EXPECT_EQ(one.excess(), 0);
          continue;
        }
        ++found;
        EXPECT_EQ(one.slowest.value, slow);
        EXPECT_EQ(one.time, 3 * one.median);
      }
      EXPECT_EQ(found, 1);
      const std::string line = straggler_text(trace);
      EXPECT_EQ(line.find("slowest of equal ranks: rank " + std::to_string(slow) + " computes "),
                0U)
          << line;
      EXPECT_NE(line.find("(+200.0 %)"), std::string::npos) << line;
    }
  }
}

// The others wait for it, and the trace says for whom: a cause that one rank of a class cannot
// show.
TEST(StepTrace, WhatTheOthersWaitForIsAStraggler) {
  const auto cause = [](const Trace& trace) {
    const viz::TraceIndex index(trace);
    return viz::summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows())
        .causes[static_cast<std::size_t>(IdleCause::Straggler)];
  };
  EXPECT_EQ(cause(run(kReplicas, -1, 1).trace()), 0);
  EXPECT_GT(cause(run({"data_parallel=2"}, 1, 3).trace()), 0);
  const Made slow = run(kReplicas, 2, 3);
  EXPECT_GT(cause(slow.trace()), 0);
  const Trace folded = step_trace(slow.scenario, slow.schedule, slow.start, slow.end, "", 0);
  EXPECT_EQ(cause(folded), 0);
}

TEST(StepTrace, OfLongStepsItHoldsTheFirstRankOfEachClassAndSaysSo) {
  const Made made = run(kReplicas, 0, 3);
  const Trace trace = step_trace(made.scenario, made.schedule, made.start, made.end, "made up",
                                 4 * made.schedule.num_ops() - 1);
  EXPECT_EQ(trace_fault(trace), "");
  EXPECT_EQ(trace.caption, "made up; of each class of equal ranks the first");
  ASSERT_EQ(trace.num_rows(), 1);
  EXPECT_EQ(row_name(trace, {0}), "rank 0 (x4)");
  for (std::size_t i = 0; i < made.schedule.ops.size(); ++i) {
    EXPECT_EQ(trace.end_ns[i], made.end[i].value);
  }
  EXPECT_EQ(step_trace(made.scenario, made.schedule, made.start, made.end, "",
                       4 * made.schedule.num_ops())
                .num_rows(),
            4);
}

// Beside a prediction: op against op of every rank, whichever comes first.
TEST(StepTrace, LiesBesideAPrediction) {
  for (const auto& plan : {kReplicas, kThreeD}) {
    const std::int32_t slow = 3;
    Trace measured = run(plan, slow, 2).trace(), before = predicted(plan);
    const std::int32_t ranks = measured.num_rows();
    ASSERT_LT(before.num_rows(), ranks);
    EXPECT_FALSE(viz::difference(before, measured));
    const std::int64_t step = before.step().value;
    viz::align_rows(before, measured);
    EXPECT_EQ(trace_fault(before), "");
    ASSERT_EQ(before.num_rows(), ranks);
    EXPECT_EQ(before.step().value, step);
    EXPECT_EQ(row_name(before, {slow}), "rank 3");
    EXPECT_EQ(before.rows[0].capacity_bytes, 1 << 20);
    // Who waits for whom, meets whom and touches what: as in the measurement, of the same schedule.
    EXPECT_TRUE(std::ranges::equal(before.partner, measured.partner));
    EXPECT_TRUE(std::ranges::equal(before.wait_begin, measured.wait_begin));
    EXPECT_TRUE(std::ranges::equal(before.waits, measured.waits));
    EXPECT_FALSE(before.waits.empty());
    EXPECT_TRUE(std::ranges::equal(before.operand_begin, measured.operand_begin));
    EXPECT_TRUE(std::ranges::equal(before.operands, measured.operands));
    EXPECT_TRUE(std::ranges::equal(before.values, measured.values));
    EXPECT_FALSE(before.values.empty());
    for (std::size_t row = 0; row < before.rows.size(); ++row) {
      for (std::int64_t i = before.idle_begin[row]; i < before.idle_begin[row + 1]; ++i) {
        const OpId ends = before.idle[static_cast<std::size_t>(i)].op;
        if (ends) {
          EXPECT_EQ(before.row_of(ends).index(), row);
        }
      }
    }
    const Result<viz::TraceDifference> found = viz::difference(before, measured);
    ASSERT_TRUE(found) << found.error().message;
    for (const viz::OpDifference& op : found.value().ops) {
      EXPECT_EQ(op_name(before, op.op), op_name(measured, op.op));
      if (works({.kind = measured.class_of(op.op).kind})) {
        EXPECT_EQ(op.b, measured.row_of(op.op).value == slow ? 2 * op.a : op.a);
      }
    }
    Trace again = predicted(plan), other = run(plan, slow, 2).trace();
    viz::align_rows(other, again);
    EXPECT_EQ(again.num_rows(), ranks);
    EXPECT_EQ(other.num_rows(), ranks);
  }
}

// What it says of the whole step is as before: the numbers of a prediction do not change by being
// laid beside a measurement.
TEST(StepTrace, RepeatingRowsKeepsTheSums) {
  const auto summary = [](const Trace& trace) {
    const viz::TraceIndex index(trace);
    return viz::summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows());
  };
  Trace measured = run(kThreeD, -1, 1).trace(), before = predicted(kThreeD);
  const viz::Summary folded = summary(before);
  viz::align_rows(before, measured);
  const viz::Summary all = summary(before);
  EXPECT_EQ(all.ranks, 8);
  EXPECT_EQ(all.ranks, folded.ranks);
  EXPECT_EQ(all.kinds, folded.kinds);
  EXPECT_EQ(all.causes, folded.causes);
  // Without a slow rank the measurement is the prediction, to the nanosecond.
  EXPECT_EQ(summary(measured).kinds, all.kinds);
  const Result<viz::TraceDifference> found = viz::difference(before, measured);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found.value().empty()) << found.value().ops.size();
}

TEST(StepTrace, TracesOfOtherSchedulesStayAsTheyAre) {
  Trace measured = run(kReplicas, 2, 3).trace(), other = predicted(kThreeD);
  const std::int32_t rows = other.num_rows();
  viz::align_rows(measured, other);
  EXPECT_EQ(other.num_rows(), rows);
  EXPECT_EQ(measured.num_rows(), 4);
}

TEST(StepTrace, FilesAndExportsKeepEveryRank) {
  const Trace trace = run(kThreeD, 1, 3).trace();
  const std::string path = testing::TempDir() + "step" + std::to_string(getpid());
  ASSERT_TRUE(write_trace(trace, path));
  const Result<Trace> read = read_trace(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(std::ranges::equal(read.value().row_class, trace.row_class));
  EXPECT_EQ(stragglers_json(read.value()).dump(), stragglers_json(trace).dump());
  ASSERT_TRUE(viz::export_chrome(trace, path));
  const Result<Trace> chrome = viz::load_trace(path);
  ASSERT_TRUE(chrome) << chrome.error().message;
  EXPECT_TRUE(std::ranges::equal(chrome.value().row_class, trace.row_class));
  EXPECT_EQ(stragglers_json(chrome.value()).dump(), stragglers_json(trace).dump());
  const Result<viz::TraceDifference> found = viz::difference(chrome.value(), trace);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found.value().empty());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace rehearse::cli
