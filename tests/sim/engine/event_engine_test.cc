// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/event_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/engine/sweep.h"
#include "tests/sim/engine/random_schedule.h"

namespace rehearse::sim {
namespace {

Schedule two_transfers() {
  ScheduleWriter writer(4);
  for (std::int32_t pair = 0; pair < 2; ++pair) {
    const Op send{.kind = OpKind::Send, .stream = Stream::P2p, .match = {pair}};
    Op recv = send;
    recv.kind = OpKind::Recv;
    writer.add(static_cast<std::size_t>(2 * pair), send);
    writer.add(static_cast<std::size_t>(2 * pair + 1), recv);
  }
  return writer.finish();
}

// 100 and 40 ns of one whole link. Both at half speed until the short one ends at 80, having had
// 40; the long one has 60 left and ends at 140.
TEST(EventEngine, TransfersOnOneLinkTakeTurnsByHalves) {
  const CostTable costs{.costs = {{.time = {100}, .demand_begin = 0, .demand_end = 1},
                                  {.time = {40}, .demand_begin = 0, .demand_end = 1}},
                        .demands = {{{0}, 1.0}},
                        .num_resources = 1,
                        .of_op = {0, 0, 1, 1}};
  const Timeline timeline =
      simulate(compile(two_transfers()), costs, {.record_load = true}).value();
  EXPECT_EQ(timeline.end, (std::vector<Nanoseconds>{{140}, {140}, {80}, {80}}));
  EXPECT_EQ(timeline.contended, (std::vector<Nanoseconds>{{40}, {40}, {40}, {40}}));
  EXPECT_EQ(timeline.limited_by, std::vector<ResourceId>(4, {0}));
  EXPECT_EQ(timeline.events, 2);
  const std::vector<LinkSample> load{{.time = 0, .load_ppm = 1'000'000},
                                     {.time = 140, .load_ppm = 0}};
  EXPECT_EQ(timeline.load, load);
  EXPECT_EQ(simulate(compile(two_transfers()), costs, {.share = false}).value().end,
            (std::vector<Nanoseconds>{{100}, {100}, {40}, {40}}));
}

// A collective of 50 ns slows compute by 0.5 while it runs: of 100 ns compute, 25 are done at 50,
// the other 75 run at full speed: 125.
TEST(EventEngine, CommunicationSlowsTheComputeOfItsRow) {
  ScheduleWriter writer(1);
  writer.add(0, compute_op(OpKind::Forward, {0}, {0}));
  writer.add(0, {.kind = OpKind::AllReduce, .stream = Stream::Dp});
  const CostTable costs{.costs = {{.time = {100}}, {.time = {50}, .slowdown = 0.5}},
                        .of_op = {0, 1}};
  const Timeline timeline = simulate(compile(writer.finish()), costs).value();
  EXPECT_EQ(timeline.end, (std::vector<Nanoseconds>{{125}, {50}}));
  EXPECT_EQ(timeline.slowed, (std::vector<Nanoseconds>{{25}, {0}}));
  EXPECT_TRUE(timeline.contended.empty());
}

// Both ends of a transfer name the node's link: one transfer, so it counts once, and the link is
// not overfull. Two different costs on one resource: the larger share counts.
TEST(EventEngine, BothEndsOfATransferAreOneFlow) {
  const CostTable costs{.costs = {{.time = {100}, .demand_begin = 0, .demand_end = 1},
                                  {.time = {100}, .demand_begin = 1, .demand_end = 3}},
                        .demands = {{{0}, 0.6}, {{1}, 1.0}, {{0}, 0.3}},
                        .num_resources = 2,
                        .of_op = {0, 1, 0, 0}};
  const Timeline timeline = simulate(compile(two_transfers()), costs).value();
  // 0.6 r + 0.6 r = 1: both at 5/6, so 120.
  EXPECT_EQ(timeline.end, (std::vector<Nanoseconds>{{120}, {120}, {120}, {120}}));
}

TEST(EventEngine, EqualsTheSweepWhereNothingIsShared) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 6), 80);
    const CostTable costs =
        random_costs(seed, schedule, {.host = seed % 2 == 0, .communicating = true});
    const Program program = compile(schedule);
    const Timeline swept = sweep(program, costs).value();
    const Timeline simulated = simulate(program, costs).value();
    ASSERT_EQ(simulated.start, swept.start) << seed;
    ASSERT_EQ(simulated.end, swept.end) << seed;
    ASSERT_EQ(simulated.finish, swept.finish);
    // One end per node that takes time, and at most one late issue.
    ASSERT_LE(simulated.events, 2 * program.num_nodes);
  }
}

// A solver of its own: raise all rates by small steps of the exact next event, O(flows^2).
std::vector<double> naive_max_min(const std::vector<std::span<const Demand>>& flows,
                                  const std::vector<double>& bounds, std::int32_t num_resources) {
  std::vector<double> rate(flows.size(), 0);
  std::vector<bool> fixed(flows.size(), false);
  for (;;) {
    std::vector<double> used(static_cast<std::size_t>(num_resources)), rising(used.size());
    double step = 2;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const Demand& demand : flows[f]) {
        used[demand.resource.index()] += rate[f] * demand.share;
        if (!fixed[f]) rising[demand.resource.index()] += demand.share;
      }
      if (!fixed[f]) step = std::min(step, bounds[f] - rate[f]);
    }
    if (std::ranges::find(fixed, false) == fixed.end()) return rate;
    for (std::size_t k = 0; k < used.size(); ++k) {
      if (rising[k] > 0) step = std::min(step, (1 - used[k]) / rising[k]);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (fixed[f]) continue;
      rate[f] += step;
      fixed[f] = rate[f] >= bounds[f] - 1e-12;
      for (const Demand& demand : flows[f]) {
        const std::size_t k = demand.resource.index();
        fixed[f] = fixed[f] || used[k] + rising[k] * step >= 1 - 1e-9;
      }
    }
  }
}

// Conservation: whatever the engine found, every op got exactly its time alone as work. Between two
// neighbouring instants the set that runs is known from starts and ends; its rates are computed
// afresh and integrated. Ends are rounded up to whole ns: an op may get up to that much too much.
void expect_work_conserved(const Schedule& schedule, const Program& program, const CostTable& costs,
                           const Timeline& timeline) {
  std::set<std::int64_t> instants;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    instants.insert(timeline.start[i].value);
    instants.insert(timeline.end[i].value);
  }
  struct Flow {
    std::vector<Demand> demands;
    std::int64_t start = 0, end = 0, time = 0;
    double work = 0;
  };
  std::vector<Flow> flows;
  for (std::int32_t n = 0; n < program.num_nodes; ++n) {
    Flow flow;
    std::set<std::int32_t> seen;
    for (const OpId op : program.members_of({n})) {
      const Cost& cost = costs.cost(op);
      flow.start = timeline.start[op.index()].value;
      flow.end = timeline.end[op.index()].value;
      flow.time = std::max(flow.time, cost.time.value);
      if (!seen.insert(costs.of_op[op.index()]).second) continue;
      for (const Demand& demand : costs.demands_of(cost)) {
        const auto same = std::ranges::find(flow.demands, demand.resource, &Demand::resource);
        if (same == flow.demands.end()) {
          flow.demands.push_back(demand);
        } else {
          same->share = std::max(same->share, demand.share);
        }
      }
    }
    flows.push_back(flow);
  }
  for (auto from = instants.begin(); std::next(from) != instants.end(); ++from) {
    std::vector<std::size_t> running;
    std::vector<std::span<const Demand>> demands;
    std::vector<double> bounds;
    for (std::size_t n = 0; n < flows.size(); ++n) {
      if (flows[n].start > *from || flows[n].end <= *from) continue;
      running.push_back(n);
      demands.emplace_back(flows[n].demands);
      double bound = 1;
      const OpId first = program.members_of({static_cast<std::int32_t>(n)}).front();
      if (program.computes(first)) {
        for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
          if (program.row_of[i] != program.row_of[first.index()] || i == first.index()) continue;
          if (timeline.start[i].value > *from || timeline.end[i].value <= *from) continue;
          bound *= 1 - costs.cost({static_cast<std::int32_t>(i)}).slowdown;
        }
      }
      bounds.push_back(bound);
    }
    const std::vector<double> rates = naive_max_min(demands, bounds, costs.num_resources);
    for (std::size_t f = 0; f < running.size(); ++f) {
      flows[running[f]].work += rates[f] * static_cast<double>(*std::next(from) - *from);
    }
  }
  for (const Flow& flow : flows) {
    if (flow.time == 0) {
      ASSERT_EQ(flow.start, flow.end);
      continue;
    }
    ASSERT_GE(flow.work, static_cast<double>(flow.time) - 0.01);
    ASSERT_LT(flow.work, static_cast<double>(flow.time) + 1.01);
  }
}

TEST(EventEngine, EveryOpGetsTheWorkItNeedsOfTheLinksAndNoMore) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 6), 40);
    const CostTable costs = random_costs(
        seed, schedule, {.host = seed % 3 == 0, .demands = true, .slowdown = seed % 2 == 0});
    const Program program = compile(schedule);
    const Timeline timeline = simulate(program, costs).value();
    expect_work_conserved(schedule, program, costs, timeline);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// end - start = time alone + contended + slowed; nothing starts before what it waits for.
TEST(EventEngine, AccountsForEveryNanosecondOfEveryOp) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Schedule schedule = random_schedule(seed, 4, 60);
    const CostTable costs = random_costs(seed, schedule, {true, true, true, true});
    const Program program = compile(schedule);
    const Timeline timeline = simulate(program, costs).value();
    for (std::int32_t n = 0; n < program.num_nodes; ++n) {
      const std::span<const OpId> members = program.members_of({n});
      std::int64_t time = 0;
      for (const OpId op : members) time = std::max(time, costs.cost(op).time.value);
      for (const OpId op : members) {
        const std::size_t i = op.index();
        const std::int64_t contended = timeline.contended.empty() ? 0 : timeline.contended[i].value;
        const std::int64_t slowed = timeline.slowed.empty() ? 0 : timeline.slowed[i].value;
        ASSERT_GE(contended, 0);
        ASSERT_GE(slowed, 0);
        ASSERT_EQ((timeline.end[i] - timeline.start[i]).value, time + contended + slowed);
        for (const NodeId pred : program.preds_of({n})) {
          ASSERT_GE(timeline.start[i], timeline.end[program.members_of(pred).front().index()]);
        }
      }
    }
  }
}

// Who watches the load has every demand counted; else those are left out that bind nobody. Some
// resources are made wide enough to be among these.
TEST(EventEngine, DemandsThatBindNobodyChangeNothing) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 6), 80);
    CostTable costs = random_costs(seed, schedule, {.demands = true, .slowdown = seed % 2 == 0});
    for (Demand& demand : costs.demands) {
      if (seed % 4 < 2 && demand.resource.value % 2 == 0) demand.share /= 16;
    }
    const Program program = compile(schedule);
    const Timeline all = simulate(program, costs, {.record_load = true}).value();
    const Timeline shared = simulate(program, costs).value();
    ASSERT_EQ(all.start, shared.start) << "seed " << seed;
    ASSERT_EQ(all.end, shared.end) << "seed " << seed;
    ASSERT_EQ(all.contended, shared.contended) << "seed " << seed;
    ASSERT_EQ(all.slowed, shared.slowed) << "seed " << seed;
  }
}

TEST(EventEngine, TwoRunsAreEqualAndSeedsDiffer) {
  const Schedule schedule = random_schedule(7, 5, 200);
  const CostTable costs = random_costs(7, schedule, {true, true, true, true});
  const Program program = compile(schedule);
  const EngineOptions jitter{.row_sigma = 0.02, .op_sigma = 0.02, .seed = 3};
  const Timeline a = simulate(program, costs, jitter).value();
  const Timeline b = simulate(program, costs, jitter).value();
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.contended, b.contended);
  EngineOptions other = jitter;
  other.seed = 4;
  EXPECT_NE(simulate(program, costs, other).value().end, a.end);
}

// 10,000 ops of 10^6 ns with a spread of 2 %: mean and spread are what was asked for, within four
// standard errors of the mean (0.02 / 100) and of the spread (0.02 / sqrt(20,000)).
TEST(EventEngine, JitterHasTheSpreadThatWasAsked) {
  ScheduleWriter writer(1);
  constexpr std::int32_t kOps = 10'000;
  for (std::int32_t i = 0; i < kOps; ++i) writer.add(0, compute_op(OpKind::Forward, {0}, {i}));
  const CostTable costs{.costs = {{.time = {1'000'000}}},
                        .of_op = std::vector<std::int32_t>(kOps, 0)};
  const Timeline timeline =
      simulate(compile(writer.finish()), costs, {.op_sigma = 0.02, .seed = 1}).value();
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < kOps; ++i) {
    const double factor = static_cast<double>((timeline.end[i] - timeline.start[i]).value) * 1e-6;
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / kOps;
  EXPECT_NEAR(mean, 1, 4 * 0.02 / 100);
  EXPECT_NEAR(std::sqrt(squares / kOps - mean * mean), 0.02, 4 * 0.02 / 141);
}

TEST(EventEngine, ARowFactorMakesAStraggler) {
  ScheduleWriter writer(2);
  writer.add(0, compute_op(OpKind::Forward, {0}, {0}));
  writer.add(1, compute_op(OpKind::Forward, {1}, {0}));
  const CostTable costs{.costs = {{.time = {100}}}, .of_op = {0, 0}};
  const Timeline timeline =
      simulate(compile(writer.finish()), costs, {.row_factor = {1, 1.25}}).value();
  EXPECT_EQ(timeline.end, (std::vector<Nanoseconds>{{100}, {125}}));
  EXPECT_EQ(timeline.late, (std::vector<Nanoseconds>{{0}, {25}}));
}

// Both rows send and receive in the order that hangs one by one (program_test), but as one group:
// both transfers run at the same time, 30 and 50 ns, and what stands behind waits for the longer
// one.
TEST(EventEngine, TransfersOfAGroupRunAtTheSameTime) {
  ScheduleWriter writer(2);
  for (std::int32_t row = 0; row < 2; ++row) {
    const auto r = static_cast<std::size_t>(row);
    for (const bool sends : {true, false}) {
      writer.add(r, {.kind = sends ? OpKind::Send : OpKind::Recv,
                     .stream = Stream::P2p,
                     .match = {sends ? row : 1 - row},
                     .instance = 0});
    }
    writer.add(
        r, {.kind = row == 0 ? OpKind::Send : OpKind::Recv, .stream = Stream::P2p, .match = {2}});
  }
  const CostTable costs{.costs = {{.time = {30}}, {.time = {50}}, {.time = {5}}},
                        .of_op = {0, 1, 2, 1, 0, 2}};
  const std::vector<Nanoseconds> end{{30}, {50}, {55}, {50}, {30}, {55}};
  const Program program = compile(writer.finish());
  EXPECT_EQ(program.deadlock, "");
  EXPECT_EQ(simulate(program, costs).value().end, end);
  EXPECT_EQ(sweep(program, costs).value().end, end);
}

TEST(EventEngine, ADeadlockIsAnErrorAndNotAHang) {
  ScheduleWriter writer(2);
  for (std::int32_t row = 0; row < 2; ++row) {
    Op send{.kind = OpKind::Send, .stream = Stream::P2p, .stage = {row}, .match = {row}};
    Op recv{.kind = OpKind::Recv, .stream = Stream::P2p, .stage = {row}, .match = {1 - row}};
    writer.add(static_cast<std::size_t>(row), send);
    writer.add(static_cast<std::size_t>(row), recv);
  }
  const CostTable costs{.costs = {{.time = {1}}}, .of_op = {0, 0, 0, 0}};
  const Result<Timeline> result = simulate(compile(writer.finish()), costs);
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.starts_with("deadlock: row 0 ")) << result.error().message;
}

}  // namespace
}  // namespace rehearse::sim
