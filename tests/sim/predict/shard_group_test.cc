// SPDX-License-Identifier: Apache-2.0
// ZeRO over a part of the replicas (HSDP, MiCS): who meets, what is sent, what is held.
#include <gtest/gtest.h>

#include "schedules/proof/validate.h"
#include "schedules/ranks/group_key.h"
#include "schedules/scenario/scenario.h"
#include "schedules/scenario/zero/quantized_gather.h"
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

// What a shard group of g has summed, P / g of a bucket, goes across once a step, in FSDP2 once for
// every reduce-scatter of P: of two micro-batches. Inside a node nothing is gathered over NICs.
TEST(ShardGroup, GathersAndScattersInsideAndSumsShardsAcross) {
  struct Case {
    const char *zero, *runtime;
    std::int64_t times;  // scattered inside for every sum across
  };
  for (const auto& [zero, runtime, times] :
       {Case{"1", "megatron", 1}, Case{"2", "megatron", 2}, Case{"3", "fsdp", 1},
        Case{"3", "generic", 2}, Case{"3", "rehearse", 2}}) {
    const Prediction p = predicted(R"("shard_group": 8, "zero_stage": )" + std::string(zero) +
                                   R"(, "runtime": ")" + runtime + '"');
    const Traffic inside = traffic(p, GroupKind::Shard, OpKind::ReduceScatter);
    const Traffic across = traffic(p, GroupKind::Replicate, OpKind::AllReduce);
    EXPECT_EQ(inside.ranks, 8) << zero;
    EXPECT_EQ(across.ranks, 4) << zero;
    EXPECT_EQ(inside.count, times * across.count) << zero << runtime;
    EXPECT_EQ(inside.bytes, 8 * times * across.bytes) << zero << runtime;
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

// Of eight ranks that share a sequence two neighbours exchange heads, and every one of them is in a
// ring with its equals of the four pairs; no other replica is.
TEST(ShardGroup, PartsOfASequencesRanksAreOfOneReplica) {
  Plan plan;
  plan.context_parallel = 8;
  plan.data_parallel = 3;
  plan.head_exchange_group = 2;
  const Mesh mesh(plan);
  const Placement placement{.positions = 1, .down = {Position{0}}, .up = {}};
  for (std::int32_t d = 0; d < 3; ++d) {
    for (std::int32_t c = 0; c < 8; ++c) {
      const Coordinates at{.context = c, .data = d};
      EXPECT_EQ(group_key(GroupKind::ContextHeads, at, mesh, placement)[1], d * 4 + c / 2);
      EXPECT_EQ(group_key(GroupKind::ContextRing, at, mesh, placement)[1], d * 2 + c % 2);
    }
  }
}

// Experts have other replicas than the rest: together with parts of these nothing is priced yet.
TEST(ShardGroup, OfFoldedExpertsIsRefused) {
  for (const std::string key : {"shard_group", "secondary_shard_group"}) {
    const std::string text =
        R"({"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 32, "plan": {"micro_batch": 1,
        "global_batch": 64, "sequence_length": 1024, "zero_stage": 3, "expert_parallel": 8, ")" +
        key + R"(": 8}})";
    const Result<Scenario> scenario = parse_scenario(text, "shards.json", 1, {});
    ASSERT_FALSE(scenario);
    EXPECT_NE(scenario.error().message.find("plan." + key + ": is not priced together with folded"),
              std::string::npos)
        << scenario.error().message;
  }
}

// --- a second copy in shards over few neighbours (hpZ of ZeRO++)

constexpr const char* kEight = R"("zero_stage": 3, "secondary_shard_group": 8, "runtime": )";
std::string second(const char* runtime) {
  return kEight + ('"' + std::string(runtime)) + '"';
}
Prediction without(const char* runtime) {
  return predicted(R"("zero_stage": 3, "runtime": ")" + std::string(runtime) + '"');
}
std::int64_t padded_bytes(const Prediction& p) {
  std::int64_t bytes = 0;
  for (const Bucket& bucket : p.schedule.buckets) bytes += 2 * bucket.padded;
  return bytes;
}

// Of two micro-batches DeepSpeed gathers every bucket once over all 32 replicas, and what is
// gathered again in the step over eight; FSDP2 over all in each forward. Nothing is gathered more
// often or less than without a second copy.
TEST(SecondaryShards, AreGatheredInsideWhereTheWholeHasBeenGatheredBefore) {
  for (const auto& [runtime, times] : {std::pair{"generic", 1}, {"rehearse", 1}, {"fsdp", 2}}) {
    const Prediction p = predicted(second(runtime));
    const Traffic over_all = traffic(p, GroupKind::Data, OpKind::AllGather);
    const Traffic inside = traffic(p, GroupKind::Shard, OpKind::AllGather);
    EXPECT_EQ(over_all.ranks, 32) << runtime;
    EXPECT_EQ(inside.ranks, 8) << runtime;
    EXPECT_EQ(over_all.link, LinkKind::Nic) << runtime;
    EXPECT_EQ(inside.link, LinkKind::Port) << runtime;
    EXPECT_EQ(over_all.count, times * std::ssize(p.schedule.buckets)) << runtime;
    EXPECT_EQ(over_all.bytes, times * padded_bytes(p)) << runtime;
    const Traffic none = traffic(without(runtime), GroupKind::Data, OpKind::AllGather);
    EXPECT_EQ(over_all.count + inside.count, none.count) << runtime;
    EXPECT_EQ(over_all.bytes + inside.bytes, none.bytes) << runtime;
    EXPECT_EQ(traffic(p, GroupKind::Data, OpKind::ReduceScatter).bytes,
              traffic(without(runtime), GroupKind::Data, OpKind::ReduceScatter).bytes)
        << runtime;
    EXPECT_EQ(traffic(p, GroupKind::Replicate, OpKind::AllReduce).count, 0) << runtime;
    EXPECT_LT(p.step_s, without(runtime).step_s) << runtime;
    EXPECT_TRUE(validate(p.schedule, {}).violations.empty()) << runtime;
  }
}

// 2 B of every parameter over eight ranks more, whatever is gathered beside it: 1.236e9 of them.
TEST(SecondaryShards, HoldTwoBytesOfEveryParameterOverTheGroup) {
  const std::int64_t copy = padded_bytes(without("generic")) / 8;
  EXPECT_NEAR(static_cast<double>(copy), 2 * 1.2358e9 / 8, 1e6);
  // A block of the caching allocator may have a rest of up to 1 MiB; there are nine tensors a
  // layer.
  const std::int64_t in_blocks =
      predicted(second("generic")).memory.peak_allocated - without("generic").memory.peak_allocated;
  EXPECT_GE(in_blocks, copy);
  EXPECT_LE(in_blocks, copy + (16 * 9 + 2) * (std::int64_t{1} << 20));
  const Prediction own = predicted(second("rehearse"));
  std::int64_t in_arena = 0;
  for (const Value& value : own.schedule.values) {
    const bool of_copy = value.kind == ValueKind::ParameterShard && !value.persistent;
    in_arena += of_copy ? value.bytes.value : 0;
  }
  EXPECT_EQ(in_arena, padded_bytes(own) / 8);
  EXPECT_GT(own.memory.peak_allocated, without("rehearse").memory.peak_allocated);
  // FSDP2's last layer, embedding and head stay gathered until their backwards.
  const std::int64_t more =
      predicted(second("fsdp")).memory.peak_allocated - without("fsdp").memory.peak_allocated;
  EXPECT_GT(more, 0);
  EXPECT_LT(static_cast<double>(more), 2 * 1.2358e9 / 8);
}

// --- gathers in 8 bit (qwZ of ZeRO++)

// DeepSpeed's groups: the fewest of at most 8,000 values, a multiple of eight in each. 64 values
// are one; 8,064 = 8 x 1,008 are two; of 8 x 1,009 values, a prime number of eights, each is one.
TEST(QuantizedGather, HasDeepSpeedsGroups) {
  Plan plan;
  EXPECT_EQ(gather_scales(plan, 64, 1), 1);
  EXPECT_EQ(gather_scales(plan, 8000, 1), 1);
  EXPECT_EQ(gather_scales(plan, 8064, 1), 2);
  EXPECT_EQ(gather_scales(plan, 8 * 1009, 1), 1009);
}

// A byte for every value and four for every group instead of two for every value; what is gathered
// how often, and all else, stays.
TEST(QuantizedGather, SendsAHalfOfTheBytesAndTheScales) {
  for (const char* runtime : {"generic", "rehearse", "fsdp"}) {
    const Prediction p = predicted(R"("zero_stage": 3, "quantized_gather": 8, "runtime": ")" +
                                   std::string(runtime) + '"');
    const Prediction none = without(runtime);
    const Traffic eight = traffic(p, GroupKind::Data, OpKind::AllGather);
    const Traffic sixteen = traffic(none, GroupKind::Data, OpKind::AllGather);
    std::int64_t once = 0, of_16 = 0;
    for (const Bucket& bucket : p.schedule.buckets) {
      const std::int64_t shard = bucket.padded / 32;
      once += 32 * (shard + 4 * gather_scales(p.plan, shard, bucket.tensors));
      of_16 += 2 * bucket.padded;
    }
    EXPECT_EQ(eight.count, sixteen.count) << runtime;
    // Every bucket is gathered for a forward and a backward of two micro-batches, or stays.
    EXPECT_NEAR(static_cast<double>(eight.bytes) / static_cast<double>(once),
                static_cast<double>(sixteen.bytes) / static_cast<double>(of_16), 0.01)
        << runtime;
    EXPECT_LT(static_cast<double>(once), 0.52 * static_cast<double>(of_16)) << runtime;
    EXPECT_EQ(traffic(p, GroupKind::Data, OpKind::ReduceScatter).bytes,
              traffic(none, GroupKind::Data, OpKind::ReduceScatter).bytes)
        << runtime;
    EXPECT_LT(p.step_s, none.step_s) << runtime;
    EXPECT_TRUE(validate(p.schedule, {}).violations.empty()) << runtime;
  }
}

// The group's size divides what the copy needs and its gathers' way: over two of four nodes they
// leave the node as those over all do.
TEST(SecondaryShards, OverMoreThanANodeLeaveIt) {
  const Prediction p =
      predicted(R"("zero_stage": 3, "runtime": "generic", "secondary_shard_group": 16)");
  EXPECT_EQ(traffic(p, GroupKind::Shard, OpKind::AllGather).link, LinkKind::Nic);
  EXPECT_LT(p.memory.peak_allocated, predicted(second("generic")).memory.peak_allocated);
  EXPECT_GT(p.step_s, predicted(second("generic")).step_s);
}

}  // namespace
}  // namespace rehearse::sim
