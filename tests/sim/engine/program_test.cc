// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/program.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/sim/engine/random_schedule.h"

namespace rehearse::sim {
namespace {

Op transfer(OpKind kind, std::int32_t stage, std::int32_t microbatch, std::int32_t match) {
  return {.kind = kind,
          .stream = Stream::P2p,
          .payload = Payload::Activation,
          .stage = {stage},
          .microbatch = {microbatch},
          .match = {match}};
}

// 0F0 -> 0SEND_F0 = 1RECV_F0 -> 1F0: five ops, four nodes, the transfer is one.
TEST(Program, ASendAndItsRecvAreOneNode) {
  ScheduleWriter writer(2);
  writer.add(0, compute_op(OpKind::Forward, {0}, {0}));
  writer.add(0, transfer(OpKind::Send, 0, 0, 0), {{0, false}});
  writer.add(1, transfer(OpKind::Recv, 1, 0, 0));
  writer.add(1, compute_op(OpKind::Forward, {1}, {0}), {{0, false}});
  const Program program = compile(writer.finish());
  EXPECT_EQ(program.deadlock, "");
  EXPECT_EQ(program.num_nodes, 3);
  EXPECT_EQ(program.node_of[1], program.node_of[2]);
  EXPECT_EQ(program.members_of(program.node_of[1]).size(), 2u);
  EXPECT_EQ(program.preds_of(program.node_of[3]).front(), program.node_of[1]);
}

// Topological order, every stream and wait edge present, nothing else: over 200 random schedules.
TEST(Program, HoldsExactlyTheEdgesOfTheSchedule) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Schedule schedule = random_schedule(seed, 1 + static_cast<std::int32_t>(seed % 6), 60);
    const Program program = compile(schedule);
    ASSERT_EQ(program.deadlock, "") << seed;
    std::set<std::tuple<std::int32_t, std::int32_t, Edge>> expected, found;
    for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
      std::array<std::int32_t, kNumStreams> last;
      last.fill(-1);
      for (std::size_t i = schedule.first_op({r}); i < schedule.first_op({r + 1}); ++i) {
        const NodeId node = program.node_of[i];
        std::int32_t& before = last[static_cast<std::size_t>(schedule.ops[i].stream)];
        if (before >= 0) {
          expected.insert(
              {program.node_of[static_cast<std::size_t>(before)].value, node.value, Edge::Queue});
        }
        before = static_cast<std::int32_t>(i);
        for (auto w = static_cast<std::size_t>(schedule.wait_begin[i]);
             w < static_cast<std::size_t>(schedule.wait_begin[i + 1]); ++w) {
          expected.insert({program.node_of[schedule.waits[w].index()].value, node.value,
                           schedule.wait_is_reuse[w] != 0 ? Edge::Reuse : Edge::Data});
        }
      }
    }
    for (std::int32_t n = 0; n < program.num_nodes; ++n) {
      for (auto k = static_cast<std::size_t>(program.pred_begin[static_cast<std::size_t>(n)]);
           k < static_cast<std::size_t>(program.pred_begin[static_cast<std::size_t>(n) + 1]); ++k) {
        ASSERT_LT(program.preds[k].value, n);
        found.insert({program.preds[k].value, n, program.pred_edge[k]});
      }
    }
    ASSERT_EQ(found, expected) << seed;
  }
}

// Rank 0 sends before it receives, and so does rank 1: the transfers wait for one another.
TEST(Program, CrossedTransfersAreADeadlockWithHeadsAndCycle) {
  ScheduleWriter writer(2);
  writer.add(0, transfer(OpKind::Send, 0, 0, 0));
  writer.add(0, transfer(OpKind::Recv, 0, 1, 1));
  writer.add(1, transfer(OpKind::Send, 1, 1, 1));
  writer.add(1, transfer(OpKind::Recv, 1, 0, 0));
  const Program program = compile(writer.finish());
  EXPECT_EQ(program.num_runnable, 0);
  EXPECT_EQ(program.deadlock,
            "deadlock: row 0 0SEND_F0 waits for row 1 1RECV_F0, which waits for row 1 1SEND_F1; "
            "row 1 1SEND_F1 waits for row 0 0RECV_F1, which waits for row 0 0SEND_F0; "
            "cycle: row 0 0RECV_F1 waits for row 0 0SEND_F0 = row 1 1RECV_F0 waits for row 1 "
            "1SEND_F1 = row 0 0RECV_F1");
}

TEST(Program, ASendWithoutItsRecvIsNamed) {
  ScheduleWriter writer(1);
  writer.add(0, compute_op(OpKind::Forward, {0}, {0}));
  writer.add(0, transfer(OpKind::Send, 0, 0, 0), {{0, false}});
  writer.add(0, compute_op(OpKind::Forward, {0}, {1}));
  const Program program = compile(writer.finish());
  EXPECT_EQ(program.num_runnable, 2);
  EXPECT_EQ(program.deadlock, "deadlock: row 0 0SEND_F0 has no other end");
}

TEST(Program, AnOpThatWaitsForItselfIsADeadlockAndNotAHang) {
  ScheduleWriter writer(1);
  writer.add(0, compute_op(OpKind::Forward, {0}, {0}), {{0, false}});
  EXPECT_NE(compile(writer.finish()).deadlock, "");
}

TEST(Program, AnEmptyScheduleIsAProgramWithoutNodes) {
  EXPECT_EQ(compile(Schedule{}).num_nodes, 0);
  EXPECT_EQ(compile(ScheduleWriter(3).finish()).num_rows, 3);
}

// Match numbers of somebody's file may be anything.
TEST(Program, MatchNumbersNeedNotBeDense) {
  ScheduleWriter writer(2);
  writer.add(0, transfer(OpKind::Send, 0, 0, 2'000'000'000));
  writer.add(1, transfer(OpKind::Recv, 1, 0, 2'000'000'000));
  const Program program = compile(writer.finish());
  EXPECT_EQ(program.num_nodes, 1);
  EXPECT_EQ(program.deadlock, "");
}

}  // namespace
}  // namespace rehearse::sim
