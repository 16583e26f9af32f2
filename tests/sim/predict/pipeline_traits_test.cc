// SPDX-License-Identifier: Apache-2.0
// What Megatron does in an interleaved pipeline: reductions of all positions start together, a
// receive stands one op ahead, and of code before October 2023 compute waits. What DeepSpeed sends.
// What replicas under ZeRO-1 tell each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

// Four positions, eight micro-batches, two replicas; `set` changes the plan that was read.
template <class Set>
Prediction predicted(int chunks, Set set) {
  const std::string text =
      R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 8, "plan": {"pipeline_parallel": 4,
      "data_parallel": 2, "zero_stage": 1, "micro_batch": 1, "global_batch": 16,
      "sequence_length": 512, "overlap": {"gradient_reduce": true}, "virtual_stages": )" +
      std::to_string(chunks) + "}}";
  Result<Scenario> read = parse_scenario(text, "interleaved.json", 1, {});
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  Scenario scenario = std::move(read).value();
  set(scenario.plan.runtime);
  const Result<Cluster> cluster = read_cluster(scenario.cluster);
  Result<Prediction> made = predict(scenario, cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made).value();
}

// How many backwards of the row lie between the last one that adds to the bucket and `behind`; -1:
// that is the row's last.
std::int32_t backwards_later(const Schedule& s, RankClass row, BucketId bucket, OpId behind) {
  std::int32_t done = 0, added = -1, waited = -1;
  for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    if (op.kind != OpKind::Backward) continue;
    const bool adds = std::ranges::any_of(s.operands_of({i}), [&](const Operand& operand) {
      const Value& value = s.values[operand.value.index()];
      return value.kind == ValueKind::Gradient && value.bucket == bucket;
    });
    if (adds) added = done;
    if (OpId{i} == behind) waited = done;
    if (op.segment_begin == 0) ++done;  // parts run from the last layer to the first
  }
  return waited == done - 1 ? -1 : waited - added;
}

// Position r starts a chunk's reductions r backwards after its own last one of the chunk, when
// position 0 ends its own, or at its end. Reductions keep their order, so that each starts behind
// the latest compute op that one of them has waited for.
TEST(AlignedReductions, StartOnAllPositionsTogether) {
  for (const int chunks : {1, 2}) {
    const Prediction p = predicted(chunks, [](RuntimeTraits& t) { t.aligned_reductions = true; });
    const Schedule& s = p.schedule;
    int reductions = 0;
    for (RankClass row{1}; row.value < s.num_rows(); ++row.value) {
      OpId behind;
      for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
        const Op& op = s.ops[static_cast<std::size_t>(i)];
        if (op.kind != OpKind::ReduceScatter) continue;
        for (const OpId wait : s.waits_of({i})) {
          if (s.ops[wait.index()].kind == OpKind::Backward) behind = std::max(behind, wait);
        }
        const std::int32_t later = backwards_later(s, row, op.bucket, behind);
        EXPECT_TRUE(later == -1 || later == row.value)
            << chunks << " row " << row.value << ": " << later;
        ++reductions;
      }
    }
    EXPECT_GE(reductions, 3 * chunks);
  }
}

// Compute is slower beside a reduction. Alone, each position of GPT-3's eight would lose that time
// in turn.
TEST(AlignedReductions, AreFasterThanEachForItselfInADeepPipeline) {
  const auto step = [](bool aligned) {
    Scenario scenario = read_scenario("scenarios/gpt3-175b-1024.json",
                                      {.overrides = {"plan.overlap.gradient_reduce=true"}})
                            .value();
    scenario.plan.runtime.aligned_reductions = aligned;
    const Cluster cluster = read_cluster(scenario.cluster).value();
    return predict(scenario, cluster, {.memory = false, .lifetimes = false}).value().step_s;
  };
  EXPECT_LT(step(true), step(false));
}

// How many receives of activations stand in their row's program before the forward that precedes
// the one that takes them.
std::int32_t posted_early(const Schedule& s) {
  using Unit = std::pair<std::int32_t, std::int32_t>;  // stage, micro-batch
  std::int32_t early = 0;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::map<Unit, std::int32_t> number;  // of a forward in its row
    for (const Op& op : s.program(row)) {
      if (op.kind != OpKind::Forward) continue;
      number.try_emplace({op.stage.value, op.microbatch.value},
                         static_cast<std::int32_t>(number.size()));
    }
    std::int32_t begun = 0;
    for (const Op& op : s.program(row)) {
      const Unit unit{op.stage.value, op.microbatch.value};
      if (op.kind == OpKind::Forward) begun = number[unit] + 1;
      if (op.kind != OpKind::Recv || op.payload != Payload::Activation) continue;
      early += begun < number[unit] ? 1 : 0;
    }
  }
  return early;
}

TEST(ReceivesOneAhead, StandBehindTheForwardBeforeTheirOwn) {
  const auto early = [](bool ahead) {
    return posted_early(
        predicted(3, [&](RuntimeTraits& t) { t.receives_one_ahead = ahead; }).schedule);
  };
  EXPECT_EQ(early(true), 0);
  EXPECT_GT(early(false), 0);
}

// GPT-3 on eight positions, 64 micro-batches.
Prediction deep(const std::string& overrides) {
  const std::string text =
      R"({"model": "gpt3-175b", "cluster": "dgx-a100-80gb", "gpus": 64, "plan": {"tensor_parallel": 8,
      "pipeline_parallel": 8, "micro_batch": 1, "global_batch": 64, "sequence_length": 2048,
      "recompute": "full", )" +
      overrides + "}}";
  const Scenario scenario = parse_scenario(text, "deep.json", 1, {}).value();
  const Cluster cluster = read_cluster(scenario.cluster).value();
  return predict(scenario, cluster, {.memory = false, .lifetimes = false}).value();
}

// Every chunk of a position sends in both directions for every micro-batch, 0.72 ms each in which
// nothing travels; filling and draining add some, and the transfers themselves.
TEST(InterleavedTransfers, AreWaitedForWhereThePlanSaysSo) {
  const auto step = [](const std::string& chunks, const std::string& more = "") {
    return deep(R"("runtime": "megatron_2023", "virtual_stages": )" + chunks + more).step_s;
  };
  const std::string waits = R"(, "overlap": {"pipeline": false})";
  const double waited = step("2", waits) - step("2");
  EXPECT_GT(waited, 2 * 2 * 64 * 0.72e-3);
  EXPECT_LT(waited, 2 * (2 * 2 * 64 * 0.72e-3));
  EXPECT_EQ(step("2"), step("2", R"(, "overlap": {"pipeline": true})"));
  EXPECT_EQ(step("1"), step("1", waits));
}

TEST(DeepSpeedsTransfers, AreAPartFromEachTensorParallelRank) {
  const auto sent = [](const std::string& more) {
    std::int64_t bytes = 0;
    for (const CommunicationRow& row :
         deep(R"("runtime": "megatron_deepspeed")" + more).communication) {
      if (row.traffic.kind == OpKind::Send) bytes += row.traffic.bytes;
    }
    return bytes;
  };
  EXPECT_GT(sent(""), 0);
  EXPECT_EQ(8 * sent(""), sent(R"(, "transfer_scatter_gather": false)"));
}

// Eight replicas of one GPU each under ZeRO-1, gradients of as many bytes as said.
Prediction replicas(int stored, const std::string& more) {
  const std::string text =
      R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 8, "plan": {"zero_stage": 1,
      "micro_batch": 1, "global_batch": 8, "sequence_length": 512, "precision": {"parameters": 2,
      "optimizer": 12, "gradients": )" +
      std::to_string(stored) + "}" + more + "}}";
  const Scenario scenario = parse_scenario(text, "replicas.json", 1, {}).value();
  return predict(scenario, read_cluster(scenario.cluster).value(), {.lifetimes = false}).value();
}
std::int64_t bytes_of(const Prediction& p, OpKind kind) {
  std::int64_t bytes = 0;
  for (const CommunicationRow& row : p.communication) {
    if (row.traffic.kind == kind) bytes += row.traffic.bytes;
  }
  return bytes;
}

// 2 + 4 bytes are stored, at most 4 travel; what is said travels, and memory is what is stored.
TEST(GradientCommunication, IsOfATypeOfItsOwn) {
  const auto reduced = [](int stored, const std::string& more) {
    return bytes_of(replicas(stored, more), OpKind::ReduceScatter);
  };
  const std::string bf16 = R"(, "gradient_communication": "bf16")",
                    fp32 = R"(, "gradient_communication": "fp32")";
  const std::int64_t two = reduced(2, "");
  EXPECT_GT(two, 0);
  EXPECT_EQ(reduced(4, ""), 2 * two);
  EXPECT_EQ(reduced(6, ""), 2 * two);
  for (const int stored : {2, 4, 6}) {
    EXPECT_EQ(reduced(stored, bf16), two);
    EXPECT_EQ(reduced(stored, fp32), 2 * two);
    EXPECT_EQ(replicas(stored, bf16).memory.peak_device, replicas(stored, fp32).memory.peak_device);
  }
  const Prediction whole = replicas(2, R"(, "gradient_reduction": "all_reduce")");
  const std::int64_t others = bytes_of(replicas(2, ""), OpKind::AllReduce);  // norms and the loss
  EXPECT_EQ(bytes_of(whole, OpKind::AllReduce), two + others);
  EXPECT_EQ(bytes_of(whole, OpKind::ReduceScatter), 0);
}

TEST(ParameterUpdate, MayBroadcastWholeTensors) {
  const Prediction gathers = replicas(4, ""),
                   sends = replicas(4, R"(, "parameter_update": "broadcast")");
  EXPECT_EQ(bytes_of(sends, OpKind::Broadcast), bytes_of(gathers, OpKind::AllGather));
  EXPECT_EQ(bytes_of(sends, OpKind::AllGather), 0);
  EXPECT_GT(sends.step_s, gathers.step_s);
}

}  // namespace
}  // namespace rehearse::sim
