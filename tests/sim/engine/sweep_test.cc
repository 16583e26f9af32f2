// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/sweep.h"

#include <gtest/gtest.h>

#include "schedules/order/registry.h"
#include "schedules/proof/deadlock.h"
#include "schedules/transfers/add_transfers.h"
#include "tests/sim/engine/random_schedule.h"

namespace rehearse::sim {
namespace {

// The definition, read off the schedule without a Program: whatever heads its stream with its waits
// done and all its partners likewise runs; repeated until nothing moves.
Timeline perform(const Schedule& schedule, const CostTable& costs) {
  const std::size_t num_ops = schedule.ops.size();
  std::vector<Nanoseconds> issued(num_ops), ready(num_ops);
  std::vector<std::int32_t> previous(num_ops, -1);
  for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
    Nanoseconds host{};
    std::array<std::int32_t, kNumStreams> last;
    last.fill(-1);
    for (std::size_t i = schedule.first_op({r}); i < schedule.first_op({r + 1}); ++i) {
      host += costs.cost({static_cast<std::int32_t>(i)}).host;
      issued[i] = host;
      std::int32_t& before = last[static_cast<std::size_t>(schedule.ops[i].stream)];
      previous[i] = before;
      before = static_cast<std::int32_t>(i);
    }
  }
  Timeline timeline;
  timeline.start.resize(num_ops);
  timeline.end.assign(num_ops, {-1});
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < num_ops; ++i) {
      if (timeline.end[i].value >= 0) continue;
      bool can = true;
      Nanoseconds start{}, time{};
      for (std::size_t j = 0; j < num_ops; ++j) {
        if (j != i &&
            (schedule.ops[i].match.value < 0 || schedule.ops[j].match != schedule.ops[i].match)) {
          continue;
        }
        const OpId op{static_cast<std::int32_t>(j)};
        start = std::max(start, issued[j]);
        time = std::max(time, costs.cost(op).time);
        const auto after = [&](std::size_t before) {
          can &= timeline.end[before].value >= 0;
          start = std::max(start, timeline.end[before]);
        };
        if (previous[j] >= 0) after(static_cast<std::size_t>(previous[j]));
        for (const OpId wait : schedule.waits_of(op)) after(wait.index());
      }
      if (!can) continue;
      for (std::size_t j = 0; j < num_ops; ++j) {
        if (j != i &&
            (schedule.ops[i].match.value < 0 || schedule.ops[j].match != schedule.ops[i].match)) {
          continue;
        }
        timeline.start[j] = start;
        timeline.end[j] = start + time;
      }
      moved = true;
    }
  }
  return timeline;
}

TEST(Sweep, EqualsTheDefinitionOnRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 5), 50);
    const CostTable costs =
        random_costs(seed, schedule, {.host = seed % 2 == 0, .communicating = true});
    const Timeline expected = perform(schedule, costs);
    const Result<Timeline> swept = sweep(compile(schedule), costs);
    ASSERT_TRUE(swept);
    ASSERT_EQ(swept.value().start, expected.start) << seed;
    ASSERT_EQ(swept.value().end, expected.end) << seed;
  }
}

// Costs 10, 10 and host time 7: starts at 7 (issued), 17 (stream), 27 (stream): host runs ahead.
// With host time 15: 15, 30, 45: every op is issued late.
TEST(Sweep, AnOpStartsNoEarlierThanItsHostHasIssuedIt) {
  ScheduleWriter writer(1);
  for (std::int32_t i = 0; i < 3; ++i) writer.add(0, compute_op(OpKind::Forward, {0}, {i}));
  const Program program = compile(writer.finish());
  CostTable costs{.costs = {{.time = {10}, .host = {7}}}, .of_op = {0, 0, 0}};
  EXPECT_EQ(sweep(program, costs).value().start, (std::vector<Nanoseconds>{{7}, {17}, {27}}));
  costs.costs[0].host = {15};
  const Timeline late = sweep(program, costs).value();
  EXPECT_EQ(late.start, (std::vector<Nanoseconds>{{15}, {30}, {45}}));
  EXPECT_EQ(late.begin, Nanoseconds{15});
  EXPECT_EQ(late.step(), Nanoseconds{40});
}

TEST(Sweep, ReportsADeadlockInsteadOfTimes) {
  ScheduleWriter writer(1);
  writer.add(0, {.kind = OpKind::Send, .stream = Stream::P2p, .match = {0}});
  const Result<Timeline> result =
      sweep(compile(writer.finish()), {.costs = {{.time = {1}}}, .of_op = {0}});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("has no other end"), std::string::npos);
}

Schedule lowered(std::string_view name, ScheduleShape shape, TransferPolicy policy) {
  const Schedule l0 = generate(name, shape).value();
  return add_transfers(l0, time_compute(l0, {}).value().end, policy);
}

CostTable costs_by_kind(const Schedule& schedule, std::int64_t forward, std::int64_t backward,
                        std::int64_t transfer) {
  CostTable costs{.costs = {{.time = {forward}}, {.time = {backward}}, {.time = {transfer}}}};
  for (const Op& op : schedule.ops) {
    const bool transfers = traits(op.kind).op_class == OpClass::Transfer;
    costs.of_op.push_back(transfers ? 2 : op.kind == OpKind::Forward ? 0 : 1);
  }
  return costs;
}

// The validator's longest path is another implementation of the same rules: it hangs where we hang,
// naive orders included, and gives the same end of every op.
TEST(Sweep, AgreesWithTheProofOnEveryScheduleAndTransferPolicy) {
  std::int32_t hanging = 0, running = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.planned) continue;
    const Result<ScheduleShape> shape = resolve_shape(info, {.positions = 4, .microbatches = 8});
    if (!shape) continue;
    for (const TransferPolicyInfo& transfers : kTransferPolicies) {
      const Schedule schedule = lowered(info.name, shape.value(), transfers.policy);
      const CostTable costs = costs_by_kind(schedule, 100, 170, 13);
      std::vector<Nanoseconds> times;
      for (std::int32_t i = 0; i < schedule.num_ops(); ++i) times.push_back(costs.cost({i}).time);
      const DeadlockProof proof = prove_no_deadlock(schedule, StreamModel::One, {.per_op = times});
      const Result<Timeline> swept = sweep(compile(schedule), costs);
      ASSERT_EQ(static_cast<bool>(swept), proof.complete) << info.name << ", " << transfers.name;
      ++(swept ? running : hanging);
      if (!swept) continue;
      ASSERT_EQ(swept.value().finish, proof.makespan) << info.name << ", " << transfers.name;
      ASSERT_EQ(swept.value().end, proof.finish) << info.name << ", " << transfers.name;
    }
  }
  EXPECT_GT(running, 40);
  EXPECT_GT(hanging, 4);
}

// GPipe and 1F1B: (m + p - 1)(F + B). Interleaved, v chunks of F/v and B/v each: m(F + B) +
// (p - 1)(F + B)/v (Narayanan et al., Efficient Large-Scale Language Model Training, 2.2).
TEST(Sweep, GivesTheClosedFormsInIntegers) {
  constexpr std::int64_t kF = 120, kB = 240;
  for (const std::int32_t p : {2, 4, 8}) {
    for (const std::int32_t m : {p, 2 * p, 4 * p}) {
      for (const std::string_view name : {"gpipe", "1f1b"}) {
        const Schedule schedule =
            lowered(name, {.positions = p, .microbatches = m}, TransferPolicy::TimeSorted);
        EXPECT_EQ(sweep(compile(schedule), costs_by_kind(schedule, kF, kB, 0)).value().step(),
                  Nanoseconds{(m + p - 1) * (kF + kB)})
            << name << " p " << p << " m " << m;
      }
      for (const std::int32_t v : {2, 3}) {
        const Schedule schedule =
            lowered("interleaved_1f1b", {.positions = p, .microbatches = m, .chunks = v},
                    TransferPolicy::TimeSorted);
        EXPECT_EQ(
            sweep(compile(schedule), costs_by_kind(schedule, kF / v, kB / v, 0)).value().step(),
            Nanoseconds{m * (kF + kB) + (p - 1) * (kF + kB) / v})
            << "p " << p << " m " << m << " v " << v;
      }
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
