// SPDX-License-Identifier: Apache-2.0
// ZeRO over a part of the replicas (HSDP, MiCS): who meets, what is sent, what is held.
#include <gtest/gtest.h>

#include "schedules/ranks/group_key.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

// 32 replicas on four nodes of eight GPUs, each micro-batch reduced, unless `plan` says else.
Prediction predicted(const std::string& plan) {
  const std::string text =
      R"({"model": "llama3.2-1b", "cluster": "dgx-a100-80gb", "gpus": 32, "plan": {"micro_batch": 1,
      "global_batch": 64, "sequence_length": 1024, )" +
      plan + "}}";
  const Result<Scenario> scenario = parse_scenario(text, "shards.json", 1, {});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made).value();
}

Traffic traffic(const Prediction& p, GroupKind group, OpKind kind) {
  for (const CommunicationRow& row : p.communication) {
    if (row.traffic.group == group && row.traffic.kind == kind) return row.traffic;
  }
  return {};
}

TEST(ShardGroup, OfAllReplicasIsTheSameAsNone) {
  for (const char* zero : {R"("zero_stage": 1)", R"("zero_stage": 3)"}) {
    const Prediction whole = predicted(zero),
                     said = predicted(zero + std::string(R"(, "shard_group": 32)"));
    EXPECT_EQ(whole.plan, said.plan);
    EXPECT_EQ(whole.step_s, said.step_s);
  }
}

// What a shard group of g has summed, P / g of a bucket, goes across once for every reduce-scatter
// of P. Inside a node nothing is gathered over NICs.
TEST(ShardGroup, GathersAndScattersInsideAndSumsShardsAcross) {
  for (const char* zero : {"1", "2", "3"}) {
    const Prediction p = predicted(R"("shard_group": 8, "zero_stage": )" + std::string(zero));
    const Traffic inside = traffic(p, GroupKind::Shard, OpKind::ReduceScatter);
    const Traffic across = traffic(p, GroupKind::Replicate, OpKind::AllReduce);
    EXPECT_EQ(inside.ranks, 8) << zero;
    EXPECT_EQ(across.ranks, 4) << zero;
    EXPECT_EQ(inside.count, across.count) << zero;
    EXPECT_EQ(inside.bytes, 8 * across.bytes) << zero;
    EXPECT_EQ(inside.link, LinkKind::Port) << zero;
    EXPECT_EQ(across.link, LinkKind::Nic) << zero;
    const Traffic gathered = traffic(p, GroupKind::Shard, OpKind::AllGather);
    EXPECT_GT(gathered.bytes, 0) << zero;
    EXPECT_EQ(gathered.link, LinkKind::Port) << zero;
    EXPECT_EQ(traffic(p, GroupKind::Data, OpKind::ReduceScatter).count, 0) << zero;
  }
}

// A rank holds 1/g of what is sharded: with ZeRO-3 parameters and two moments, 12 bytes of each of
// 1.24e9 parameters; 8 shards hold four times what 32 do.
TEST(ShardGroup, HoldsTheShardsOfItsOwnGroup) {
  const auto optimizer = [](const Prediction& p) { return p.memory.ranks.front().parts.optimizer; };
  const Prediction few = predicted(R"("zero_stage": 3, "shard_group": 8)");
  const Prediction all = predicted(R"("zero_stage": 3)");
  EXPECT_NEAR(static_cast<double>(optimizer(few)) / static_cast<double>(optimizer(all)), 4, 0.1);
}

// One shard per group: nothing is sharded, and gradients are summed over all as without ZeRO.
TEST(ShardGroup, OfOneReducesAsDataParallelDoes) {
  const Prediction one = predicted(R"("zero_stage": 1, "shard_group": 1)");
  const Prediction none = predicted(R"("zero_stage": 0)");
  EXPECT_EQ(traffic(one, GroupKind::Shard, OpKind::ReduceScatter).count, 0);
  EXPECT_EQ(traffic(one, GroupKind::Replicate, OpKind::AllReduce).bytes,
            traffic(none, GroupKind::Data, OpKind::AllReduce).bytes);
  EXPECT_EQ(one.step_s, none.step_s);
}

// Replica number d c + context: with context parallelism of 2 a shard group of 8 is four
// neighbouring data coordinates with both context ranks; every replica is in one of each.
TEST(ShardGroup, AreNeighboursAndReplicatesAreOneOfEach) {
  Plan plan;
  plan.context_parallel = 2;
  plan.data_parallel = 16;
  plan.zero_stage = 3;
  plan.shard_group = 8;
  const Mesh mesh(plan);
  const Placement placement{.positions = 1, .down = {Position{0}}, .up = {}};
  for (std::int32_t d = 0; d < 16; ++d) {
    for (std::int32_t c = 0; c < 2; ++c) {
      const Coordinates at{.context = c, .data = d};
      EXPECT_EQ(group_key(GroupKind::Shard, at, mesh, placement)[1], d / 4);
      EXPECT_EQ(group_key(GroupKind::Replicate, at, mesh, placement)[1], d % 4 * 2 + c);
    }
  }
}

// Experts have other replicas than the rest: together with parts of these nothing is priced yet.
TEST(ShardGroup, OfFoldedExpertsIsRefused) {
  const std::string text =
      R"({"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 32, "plan": {"micro_batch": 1,
      "global_batch": 64, "sequence_length": 1024, "zero_stage": 1, "shard_group": 8,
      "expert_parallel": 8}})";
  const Result<Scenario> scenario = parse_scenario(text, "shards.json", 1, {});
  ASSERT_FALSE(scenario);
  EXPECT_NE(scenario.error().message.find("plan.shard_group: is not priced together with folded"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
