// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/bubbles.h"

#include <gtest/gtest.h>

#include <numeric>

#include "schedules/order/registry.h"
#include "schedules/transfers/add_transfers.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/sweep.h"
#include "tests/sim/engine/random_schedule.h"

namespace rehearse::sim {
namespace {

std::int64_t of(const Causes& causes, IdleCause cause) {
  return causes[static_cast<std::size_t>(cause)];
}
Causes only(std::initializer_list<std::pair<IdleCause, std::int64_t>> list) {
  Causes causes{};
  for (const auto& [cause, time] : list) causes[static_cast<std::size_t>(cause)] = time;
  return causes;
}

Op send_or_recv(OpKind kind, std::int32_t match) {
  return {.kind = kind, .stream = Stream::P2p, .match = {match}};
}
Op forward(std::int32_t microbatch) {
  return compute_op(OpKind::Forward, {0}, {microbatch});
}

Bubbles simulated(const Schedule& schedule, const CostTable& costs,
                  const EngineOptions& options = {}) {
  const Program program = compile(schedule);
  return attribute(program, costs, simulate(program, costs, options).value());
}

// Row 0 computes 100 and sends for 10, row 1 computes 30 after it: 110 of filling, then nothing.
// Row 0 is done at 100; its transfer drains until 110, then it has nothing left to do until 140.
TEST(Bubbles, BeforeTheFirstAndAfterTheLastOpThePipelineFillsAndDrains) {
  ScheduleWriter writer(2);
  writer.add(0, forward(0));
  writer.add(0, send_or_recv(OpKind::Send, 0), {{0, false}});
  writer.add(1, send_or_recv(OpKind::Recv, 0));
  writer.add(1, forward(0), {{0, false}});
  const CostTable costs{.costs = {{.time = {100}}, {.time = {10}}, {.time = {30}}},
                        .of_op = {0, 1, 1, 2}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.rows[0].busy, 100);
  EXPECT_EQ(bubbles.rows[0].causes, only({{IdleCause::Cooldown, 40}}));
  EXPECT_EQ(bubbles.rows[1].causes, only({{IdleCause::Warmup, 110}}));
  EXPECT_EQ(bubbles.exposed, (std::vector<std::int64_t>{0, 20, 0, 0}));  // 10 on either row
  EXPECT_EQ(bubbles.exposed_in_fill, bubbles.exposed);
  const std::vector<IdleSpan> spans{
      {.begin = 100, .end = 140, .op = {}, .cause = IdleCause::Cooldown},
      {.begin = 0, .end = 110, .op = {3}, .cause = IdleCause::Warmup}};
  EXPECT_EQ(bubbles.spans, spans);
}

// Row 1 has computed once and waits for row 0's second forward, of 100, and its transfer, of 10.
// It was busy until 110 + 30: from there to 200 the producer, to 210 the transfer.
TEST(Bubbles, BetweenOpsASlowProducerIsDependencyAndItsTransferCommunication) {
  ScheduleWriter writer(2);
  for (std::int32_t b = 0; b < 2; ++b) {
    const std::size_t made = writer.add(0, forward(b));
    writer.add(0, send_or_recv(OpKind::Send, b), {{made, false}});
    const std::size_t got = writer.add(1, send_or_recv(OpKind::Recv, b));
    writer.add(1, forward(b), {{got, false}});
  }
  const CostTable costs{.costs = {{.time = {100}}, {.time = {10}}, {.time = {30}}},
                        .of_op = {0, 1, 0, 1, 1, 2, 1, 2}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.rows[1].causes, only({{IdleCause::Warmup, 110},
                                          {IdleCause::Dependency, 60},
                                          {IdleCause::Communication, 10}}));
  // A straggling row 0 (25 % slower) adds its 25 to the wait in the middle: 60 + 25.
  const Bubbles late = simulated(writer.finish(), costs, {.row_factor = {1.25, 1}});
  EXPECT_EQ(late.rows[1].causes, only({{IdleCause::Warmup, 110},
                                       {IdleCause::Straggler, 2 * 25},
                                       {IdleCause::Dependency, 60},
                                       {IdleCause::Communication, 10}}));
}

// A gradient comes down: the RECV, on row 0, has the lower number, but the time stands at the SEND.
TEST(Bubbles, ExposedTimeOfATransferStandsAtItsSend) {
  ScheduleWriter writer(2);
  writer.add(0, forward(0));
  writer.add(0, send_or_recv(OpKind::Recv, 0));
  writer.add(0, compute_op(OpKind::Backward, {0}, {0}), {{1, false}});
  writer.add(1, forward(0));
  writer.add(1, send_or_recv(OpKind::Send, 0), {{0, false}});
  const CostTable costs{.costs = {{.time = {50}}, {.time = {20}}}, .of_op = {0, 1, 0, 0, 1}};
  EXPECT_EQ(simulated(writer.finish(), costs).exposed, (std::vector<std::int64_t>{0, 0, 0, 0, 40}));
}

// One row: F (100), its reduction (40) on `dp`, the optimizer: 40 of communication.
TEST(Bubbles, AnExposedCollectiveIsCommunicationOnItsOp) {
  ScheduleWriter writer(1);
  writer.add(0, forward(0));
  writer.add(0, {.kind = OpKind::ReduceScatter, .stream = Stream::Dp}, {{0, false}});
  writer.add(0, {.kind = OpKind::OptimizerStep}, {{1, false}});
  const CostTable costs{.costs = {{.time = {100}}, {.time = {40}}}, .of_op = {0, 1, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.causes, only({{IdleCause::Communication, 40}}));
  EXPECT_EQ(bubbles.exposed, (std::vector<std::int64_t>{0, 40, 0}));
  EXPECT_EQ(bubbles.busy, 200);
}

// A tied gradient is added on `dp` (15) after its reduction (40): the optimizer depends on it, and
// a single row has no pipeline to drain.
TEST(Bubbles, AnAddOnTheReducingStreamIsDependency) {
  ScheduleWriter writer(1);
  writer.add(0, forward(0));
  writer.add(0, {.kind = OpKind::ReduceScatter, .stream = Stream::Dp}, {{0, false}});
  writer.add(0, {.kind = OpKind::Add, .stream = Stream::Dp});
  writer.add(0, {.kind = OpKind::OptimizerStep}, {{2, false}});
  const CostTable costs{.costs = {{.time = {100}}, {.time = {40}}, {.time = {15}}},
                        .of_op = {0, 1, 2, 0}};
  EXPECT_EQ(simulated(writer.finish(), costs).causes,
            only({{IdleCause::Communication, 40}, {IdleCause::Dependency, 15}}));
}

// The same on the compute stream: booked alike, though no gap is drawn under it.
TEST(Bubbles, ACollectiveOnTheComputeStreamIsIdleTimeButNoGap) {
  ScheduleWriter writer(1);
  writer.add(0, forward(0));
  writer.add(0, {.kind = OpKind::AllReduce, .stream = Stream::Compute});
  writer.add(0, {.kind = OpKind::OptimizerStep});
  const CostTable costs{.costs = {{.time = {100}}, {.time = {40}}}, .of_op = {0, 1, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.causes, only({{IdleCause::Communication, 40}}));
  EXPECT_TRUE(bubbles.spans.empty());
}

// Bodies that communicate for 30 of 100; both rows share one link, each taking 3/4 of it: rates
// 2/3, so 150 ns each, 50 of them for the link.
TEST(Bubbles, ABodysOwnCollectivesAreIdleTimeAndTheirLinkContention) {
  ScheduleWriter writer(2);
  writer.add(0, forward(0));
  writer.add(1, forward(0));
  const CostTable costs{
      .costs = {{.time = {100}, .communicating = {30}, .demand_begin = 0, .demand_end = 1}},
      .demands = {{{0}, 0.75}},
      .num_resources = 1,
      .of_op = {0, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  for (const RowBubbles& row : bubbles.rows) {
    EXPECT_EQ(row.busy, 70);
    EXPECT_EQ(row.causes, only({{IdleCause::Communication, 30}, {IdleCause::Contention, 50}}));
    EXPECT_EQ(row.in_body, 80);
  }
}

// The host needs 60 per op of 50: the second op is issued at 120, 10 after the first ended.
TEST(Bubbles, WhatTheHostIssuesLateIsHost) {
  ScheduleWriter writer(1);
  writer.add(0, forward(0));
  writer.add(0, forward(1));
  const CostTable costs{.costs = {{.time = {50}, .host = {60}}}, .of_op = {0, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.causes, only({{IdleCause::Host, 10}}));
}

// The second op needs nothing but memory that an offload of 80 still holds: resource. With a data
// wait until 30 (a fetch), only what comes after that is the memory's fault.
TEST(Bubbles, WaitingForMemoryAloneIsResource) {
  ScheduleWriter writer(1);
  const std::size_t first = writer.add(0, forward(0));
  const std::size_t offload =
      writer.add(0, {.kind = OpKind::Offload, .stream = Stream::D2h}, {{first, false}});
  const std::size_t fetch =
      writer.add(0, {.kind = OpKind::Fetch, .stream = Stream::H2d}, {{first, false}});
  writer.add(0, forward(1), {{offload, true}, {fetch, false}});
  const CostTable costs{.costs = {{.time = {10}}, {.time = {80}}, {.time = {30}}},
                        .of_op = {0, 1, 2, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.causes, only({{IdleCause::Resource, 50}, {IdleCause::Communication, 30}}));
}

// Row 0 computes at once; in the middle two transfers of 20 stand on one stream, both with their
// data there: the second stood behind the first, for 20, and then took 20.
TEST(Bubbles, ATransferBehindAnotherIsContention) {
  ScheduleWriter writer(2);
  writer.add(1, forward(0));
  const std::size_t made = writer.add(0, forward(0));
  for (std::int32_t b = 0; b < 2; ++b) {
    writer.add(0, send_or_recv(OpKind::Send, b), {{made, false}});
    writer.add(1, send_or_recv(OpKind::Recv, b));
  }
  writer.add(1, forward(1), {{2, false}});  // needs the second
  const CostTable costs{.costs = {{.time = {50}}, {.time = {20}}}, .of_op = {0, 1, 1, 0, 1, 1, 0}};
  const Bubbles bubbles = simulated(writer.finish(), costs);
  EXPECT_EQ(bubbles.rows[1].causes,
            only({{IdleCause::Contention, 20}, {IdleCause::Communication, 20}}));
}

// What must hold whatever the schedule: the sums, exactly; and gaps in order, within the step.
void expect_sums(const Schedule& schedule, const CostTable& costs, const Timeline& timeline,
                 const Bubbles& bubbles) {
  const std::int64_t step = timeline.step().value;
  Causes causes{};
  std::int64_t idle = 0, busy = 0, ranks = 0;
  for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
    const RowBubbles& row = bubbles.rows[static_cast<std::size_t>(r)];
    std::int64_t computing = 0, on_stream = 0;  // counted afresh from the timeline
    for (std::size_t i = schedule.first_op({r}); i < schedule.first_op({r + 1}); ++i) {
      const Op& op = schedule.ops[i];
      if (op.stream != Stream::Compute) continue;
      const std::int64_t lasted = (timeline.end[i] - timeline.start[i]).value;
      on_stream += lasted;
      if (traits(op.kind).op_class == OpClass::Collective) continue;
      const std::int64_t waited = costs.cost({static_cast<std::int32_t>(i)}).communicating.value +
                                  (timeline.contended.empty() ? 0 : timeline.contended[i].value);
      computing += lasted - std::min(lasted, waited);
    }
    ASSERT_EQ(row.busy, computing);
    ASSERT_EQ(row.busy + row.idle, step);
    ASSERT_EQ(std::accumulate(row.causes.begin(), row.causes.end(), std::int64_t{0}), row.idle);
    for (const std::int64_t cause : row.causes) ASSERT_GE(cause, 0);
    std::int64_t gaps = 0, last_end = timeline.begin.value;
    for (auto s = static_cast<std::size_t>(bubbles.span_begin[static_cast<std::size_t>(r)]);
         s < static_cast<std::size_t>(bubbles.span_begin[static_cast<std::size_t>(r) + 1]); ++s) {
      ASSERT_GE(bubbles.spans[s].begin, last_end);
      ASSERT_GT(bubbles.spans[s].end, bubbles.spans[s].begin);
      last_end = bubbles.spans[s].end;
      gaps += bubbles.spans[s].end - bubbles.spans[s].begin;
      if (bubbles.spans[s].op) {
        ASSERT_EQ(schedule.ops[bubbles.spans[s].op.index()].stream, Stream::Compute);
        ASSERT_LE(last_end, timeline.start[bubbles.spans[s].op.index()].value);
      }
    }
    ASSERT_EQ(gaps, step - on_stream);
    const std::int64_t multiplicity =
        schedule.rows.empty() ? 1 : schedule.rows[static_cast<std::size_t>(r)].multiplicity;
    ranks += multiplicity;
    idle += multiplicity * row.idle;
    busy += multiplicity * row.busy;
    for (std::size_t c = 0; c < causes.size(); ++c) causes[c] += multiplicity * row.causes[c];
  }
  ASSERT_EQ(bubbles.causes, causes);
  ASSERT_EQ(bubbles.idle, idle);
  ASSERT_EQ(bubbles.busy, busy);
  ASSERT_EQ(bubbles.ranks, ranks);
  ASSERT_EQ(bubbles.busy + bubbles.idle, ranks * step);
  std::int64_t exposed = 0;
  for (std::size_t i = 0; i < bubbles.exposed.size(); ++i) {
    ASSERT_GE(bubbles.exposed[i], bubbles.exposed_in_fill[i]);
    exposed += bubbles.exposed[i] - bubbles.exposed_in_fill[i];
  }
  ASSERT_EQ(exposed, of(causes, IdleCause::Communication) + of(causes, IdleCause::Contention));
}

TEST(Bubbles, AddUpOnRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 7), 70);
    if (seed % 3 == 0) {
      for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
        schedule.rows.push_back({.position = {r}, .multiplicity = 1 + r});
      }
    }
    const CostTable costs = random_costs(seed, schedule,
                                         {.host = seed % 2 == 0,
                                          .demands = seed % 5 != 0,
                                          .slowdown = seed % 4 == 0,
                                          .communicating = seed % 3 != 0});
    const Program program = compile(schedule);
    const EngineOptions options{
        .row_sigma = seed % 6 == 0 ? 0.05 : 0, .op_sigma = seed % 4 == 1 ? 0.05 : 0, .seed = seed};
    const Timeline timeline = simulate(program, costs, options).value();
    const Bubbles bubbles = attribute(program, costs, timeline);
    expect_sums(schedule, costs, timeline, bubbles);
    const Bubbles again = attribute(program, costs, simulate(program, costs, options).value());
    ASSERT_EQ(again.causes, bubbles.causes);
    ASSERT_EQ(again.spans, bubbles.spans);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// Every schedule of the table, on several shapes: sums hold, and warmup and cooldown are what the
// first starts and last ends of the rows say, for times without contention.
TEST(Bubbles, AddUpOnEverySchedule) {
  std::int32_t checked = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.planned) continue;
    for (const std::int32_t p : {2, 4}) {
      const Result<ScheduleShape> shape =
          resolve_shape(info, {.positions = p, .microbatches = 4 * p});
      if (!shape) continue;
      const Schedule l0 = generate(info.name, shape.value()).value();
      const Schedule schedule = add_transfers(l0, time_compute(l0, {}).value().end);
      CostTable costs{.costs = {{.time = {100}}, {.time = {170}}, {.time = {13}}}};
      for (const Op& op : schedule.ops) {
        const bool transfers = traits(op.kind).op_class == OpClass::Transfer;
        costs.of_op.push_back(transfers ? 2 : op.kind == OpKind::Forward ? 0 : 1);
      }
      const Program program = compile(schedule);
      const Timeline timeline = sweep(program, costs).value();
      const Bubbles bubbles = attribute(program, costs, timeline);
      expect_sums(schedule, costs, timeline, bubbles);
      for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
        std::int64_t first = timeline.finish.value, last = 0;
        for (std::size_t i = schedule.first_op({r}); i < schedule.first_op({r + 1}); ++i) {
          if (!is_compute(schedule.ops[i].kind)) continue;
          first = std::min(first, timeline.start[i].value);
          last = std::max(last, timeline.end[i].value);
        }
        const RowBubbles& row = bubbles.rows[static_cast<std::size_t>(r)];
        ASSERT_EQ(of(row.causes, IdleCause::Warmup), first) << info.name;
        ASSERT_EQ(of(row.causes, IdleCause::Cooldown), timeline.finish.value - last) << info.name;
      }
      if (HasFatalFailure()) FAIL() << info.name << " p " << p;
      ++checked;
    }
  }
  EXPECT_GE(checked, 20);
}

}  // namespace
}  // namespace rehearse::sim
