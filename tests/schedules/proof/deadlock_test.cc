// SPDX-License-Identifier: Apache-2.0
// The proof against what really happens (rendezvous.h), on other projects' schedules.
#include "schedules/proof/deadlock.h"

#include <gtest/gtest.h>

#include "schedules/formats/schedule_json.h"
#include "schedules/order/registry.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/transfers/add_transfers.h"
#include "tests/schedules/formats/fixtures.h"
#include "tests/schedules/proof/rendezvous.h"

namespace rehearse {
namespace {

const std::string kFixtures = "tests/data/schedules";

Schedule read(const std::string& path) {
  Result<ScheduleFile> file = read_schedule_json(path);
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  return std::move(file).value().schedule;
}

// Only the verdict and the heads are given; durations do not matter to them.
TEST(Deadlock, NegativeFixturesHangExactlyWhereTheySayAndNowhereElse) {
  std::int32_t verdicts = 0;
  for (const std::string& path : fixture::json_files(kFixtures + "/negative")) {
    const Result<JsonValue> document = read_json(path);
    ASSERT_TRUE(document);
    const JsonValue* expect = document.value().given("expect");
    if (expect == nullptr || !expect->is(JsonKind::Object)) continue;
    const Schedule schedule = read(path);
    for (const JsonMember& member : expect->members) {
      const std::optional<StreamModel> model = find_stream_model(member.key);
      ASSERT_TRUE(model) << member.key;
      const DeadlockProof proof = prove_no_deadlock(schedule, *model);
      fixture::Rendezvous really(schedule, *model);
      const bool ran = really.run();
      EXPECT_EQ(member.value.text, ran ? "ok" : "DEADLOCK " + really.heads())
          << path << " " << member.key;
      EXPECT_EQ(proof.complete, ran) << path << " " << member.key;
      EXPECT_EQ(proof.cycle.empty(), ran) << path << " " << member.key;
      ++verdicts;
    }
  }
  EXPECT_EQ(verdicts, 20);  // 4 schedules under 5 models
}

// A cycle must be one: every step leads to the next, and every step is true.
TEST(Deadlock, TheCycleOfPyTorch172668IsTwoRanksThatBothSendFirst) {
  const Schedule schedule = read(kFixtures + "/negative/pytorch-172668-deadlock.p2.json");
  const DeadlockProof proof = prove_no_deadlock(schedule, StreamModel::One);
  EXPECT_FALSE(proof.complete);
  EXPECT_EQ(explain(schedule, proof),
            (std::vector<std::string>{
                "rank 0: 0SEND_F1 meets 1RECV_F1 on rank 1, which is not reached",
                "rank 1: 1RECV_F1 stands behind 1SEND_F0",
                "rank 1: 1SEND_F0 meets 2RECV_F0 on rank 0, which is not reached",
                "rank 0: 2RECV_F0 stands behind 0SEND_F1",
            }));
  EXPECT_TRUE(prove_no_deadlock(schedule, StreamModel::Fuse).complete);
}

class EveryFixture : public ::testing::TestWithParam<std::string> {};

// 83 files under 6 models: the orders that projects ship never hang, and both judges say so.
TEST_P(EveryFixture, RunsToItsEndInEveryModelAsItStands) {
  const Schedule schedule = read(GetParam());
  for (const StreamModelInfo& row : kStreamModels) {
    const DeadlockProof proof = prove_no_deadlock(schedule, row.model);
    EXPECT_TRUE(proof.complete) << row.name << "\n" << cycle_in_one_line(schedule, proof);
    if (schedule.level != Level::Full) continue;
    EXPECT_TRUE(fixture::Rendezvous(schedule, row.model).run()) << row.name;
  }
}

// The longest path is the makespan that the fixture's own project measured, for compute orders and
// for both sets of durations, and stays so where transfers take no time and have a queue each.
TEST_P(EveryFixture, LongestPathIsTheFixturesMakespan) {
  const Result<JsonValue> document = read_json(GetParam());
  ASSERT_TRUE(document);
  const JsonValue* metrics = document.value().given("metrics");
  if (metrics == nullptr) return;  // sequence slices
  JsonValue compute_only = document.value();
  std::erase_if(compute_only.members,
                [](const JsonMember& member) { return member.key == "orders_with_comms"; });
  const Result<ScheduleFile> file = schedule_from_json(compute_only, GetParam());
  ASSERT_TRUE(file);
  const Schedule& l0 = file.value().schedule;
  ASSERT_EQ(l0.level, Level::Compute);
  for (const auto& [key, durations] :
       {std::pair{"F1_I1_W1_B2", OpDurations{}},
        std::pair{"F2_I3_W1_B4",
                  OpDurations{.forward = {2}, .input_gradient = {3}, .weight_gradient = {1}}}}) {
    const double makespan = metrics->given(key)->given("makespan")->number;
    const DeadlockProof proof = prove_no_deadlock(l0, StreamModel::One, durations);
    EXPECT_EQ(static_cast<double>(proof.makespan.value), makespan) << key;
    const Schedule lowered = add_transfers(l0, proof.finish);
    const DeadlockProof channels =
        prove_no_deadlock(lowered, StreamModel::PeerDirection, durations);
    EXPECT_EQ(static_cast<double>(channels.makespan.value), makespan) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFixture, ::testing::ValuesIn(fixture::json_files(kFixtures)),
                         [](const auto& test) {
                           std::string name = std::filesystem::path(test.param).stem().string();
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(Deadlock, ATransferWithoutPartnerIsNamed) {
  Schedule schedule = read(kFixtures + "/negative/naive-comm-sail-1f1b.p4.m8.v1.json");
  const auto recv = std::ranges::find_if(schedule.ops, [](const Op& op) {
    return op.kind == OpKind::Recv && op.stage.value == 3 && op.microbatch.value == 2;
  });
  recv->match = {};  // 3RECV_F2 no longer meets 2SEND_F2
  const DeadlockProof proof = prove_no_deadlock(schedule, StreamModel::PeerDirection);
  EXPECT_FALSE(proof.complete);
  EXPECT_TRUE(proof.cycle.empty());
  EXPECT_EQ(explain(schedule, proof).front(),
            "3RECV_F2 on rank 3 waits for ever: it has no partner");
}

}  // namespace
}  // namespace rehearse
