#include "sim/sweep.h"

#include <gtest/gtest.h>

#include "tests/sim/random_schedule.h"

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

}  // namespace
}  // namespace rehearse::sim
