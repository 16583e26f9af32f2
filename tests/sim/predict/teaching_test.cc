// SPDX-License-Identifier: Apache-2.0
// What scenarios/README.md says to look at is there to be seen. Relations, not figures: they hold
// for any sensible cost model.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Prediction predicted(const std::string& name, std::vector<std::string> set = {}) {
  const Result<Scenario> scenario =
      read_scenario("scenarios/" + name + ".json", {.overrides = std::move(set)});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  if (!scenario) return {};
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(cluster) << (cluster ? "" : cluster.error().message);
  if (!cluster) return {};
  Result<Prediction> prediction = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(prediction) << (prediction ? "" : prediction.error().message);
  return prediction ? std::move(prediction).value() : Prediction{};
}

TEST(Teaching, MixedPrecisionSavesTimeAndActivationsNotStates) {
  const Prediction fp32 = predicted("memory-fp32"), bf16 = predicted("memory-bf16");
  EXPECT_LT(bf16.step_s, fp32.step_s / 2);
  const double less = static_cast<double>(bf16.memory.peak_allocated) /
                      static_cast<double>(fp32.memory.peak_allocated);
  EXPECT_GT(less, 0.9);  // 18 bytes per parameter instead of 16, half the activations
  EXPECT_LT(less, 1.1);
  EXPECT_GT(bf16.memory.steady_allocated, fp32.memory.steady_allocated);
}

TEST(Teaching, EachStageOfZeroKeepsLess) {
  std::int64_t before = INT64_MAX;
  for (const char* name : {"dp-ddp", "dp-zero1", "dp-zero2", "dp-zero3"}) {
    const Prediction p = predicted(name);
    EXPECT_LT(p.memory.peak_allocated, before) << name;
    before = p.memory.peak_allocated;
  }
}

TEST(Teaching, OverlappedReductionBeatsOneGpuForAll) {
  EXPECT_LT(predicted("dp-ddp").step_s, predicted("dp-parameter-server").step_s);
}

// Of one array: an all-reduce is its two halves, and a root's port holds up a scatter as long as
// all ports together an all-to-all, which moves four times as much.
TEST(Teaching, TheSevenCollectivesCostWhatTheirLinksDo) {
  const Prediction p = predicted("collectives-4");
  const auto time = [&](OpKind kind, std::int32_t ranks) {
    const auto row = std::ranges::find_if(p.communication, [&](const CommunicationRow& one) {
      return one.traffic.group == GroupKind::Other && one.traffic.kind == kind &&
             one.traffic.ranks == ranks;
    });
    EXPECT_NE(row, p.communication.end());
    return row == p.communication.end() ? 0.0 : static_cast<double>(row->traffic.time.value);
  };
  const double halves = time(OpKind::ReduceScatter, 4) + time(OpKind::AllGather, 4);
  EXPECT_NEAR(time(OpKind::AllReduce, 4), halves, 0.3 * halves);
  EXPECT_NEAR(time(OpKind::Scatter, 4), time(OpKind::AllToAll, 4), 0.3 * time(OpKind::AllToAll, 4));
  EXPECT_NEAR(time(OpKind::Gather, 4), time(OpKind::Scatter, 4), 1);
  EXPECT_LT(time(OpKind::AllReduce, 2), time(OpKind::AllReduce, 4));
  for (const OpKind kind : {OpKind::Broadcast, OpKind::Reduce}) EXPECT_GT(time(kind, 4), 0);
}

TEST(Teaching, NaiveModelParallelIdlesThreeQuarters) {
  EXPECT_NEAR(predicted("pipeline-naive").bubble_ratio(), 0.75, 0.02);
}

// Of that step a rank computes a quarter; for the rest it waits for what others compute, also where
// transfers block the compute stream (Megatron-LM's without chunks): none stands behind another.
TEST(Teaching, WhatNaiveModelParallelWaitsForIsComputing) {
  const Prediction p = predicted("pipeline-naive");
  const auto share = [&](IdleCause cause) {
    return static_cast<double>(p.bubbles.causes[static_cast<std::size_t>(cause)]) /
           static_cast<double>(p.bubbles.idle);
  };
  EXPECT_GT(share(IdleCause::Dependency), 0.85);
  EXPECT_LT(share(IdleCause::Contention), 0.01);
  for (const CommunicationRow& row : p.communication) {
    EXPECT_LT(row.exposed_s, 0.05 * p.step_s) << name_of(row.traffic.link);
  }
}

TEST(Teaching, OneForwardOneBackwardTakesAsLongAsGpipeAndKeepsLess) {
  const Prediction gpipe = predicted("pipeline-gpipe"), f1b1 = predicted("pipeline-1f1b");
  EXPECT_NEAR(f1b1.step_s, gpipe.step_s, 0.01 * gpipe.step_s);
  EXPECT_LT(f1b1.memory.peak_allocated, gpipe.memory.peak_allocated);
  EXPECT_LT(f1b1.step_s, predicted("pipeline-naive").step_s / 2);
}

TEST(Teaching, InterleavingShrinksTheBubble) {
  const Prediction f1b1 = predicted("pipeline-1f1b"), chunks = predicted("pipeline-interleaved");
  EXPECT_LT(chunks.bubble_ratio(), f1b1.bubble_ratio());
  EXPECT_LT(chunks.step_s, f1b1.step_s);
}

TEST(Teaching, TheBestMicroBatchLiesInTheMiddleAndAutoFindsIt) {
  std::vector<double> steps;
  std::vector<std::int32_t> sizes{1, 2, 4, 8, 16, 32};
  for (const std::int32_t size : sizes) {
    steps.push_back(
        predicted("microbatch-sweep", {"plan.micro_batch=" + std::to_string(size)}).step_s);
  }
  const auto best = std::ranges::min_element(steps);
  EXPECT_NE(best, steps.begin());
  EXPECT_NE(best, steps.end() - 1);
  EXPECT_EQ(predicted("microbatch-sweep").plan.micro_batch,
            sizes[static_cast<std::size_t>(best - steps.begin())]);
}

TEST(Teaching, ALargeVocabularyFitsOnlyWhenItIsSplit) {
  EXPECT_FALSE(predicted("embedding-whole").memory.fits);
  EXPECT_TRUE(predicted("embedding-split").memory.fits);
}

TEST(Teaching, TensorParallelBelongsInsideANode) {
  EXPECT_LT(1.2 * predicted("tensor-inside-nodes").step_s, predicted("tensor-across-nodes").step_s);
}

// Weights travel with every micro-batch, activations with every sample.
TEST(Teaching, AGridDividesActivationsAndIsNoFasterForIt) {
  const auto bytes = [](const Prediction& p, GroupKind group) {
    std::int64_t sum = 0;
    for (const CommunicationRow& row : p.communication) {
      const OpKind kind = row.traffic.kind;
      const bool panels = kind == OpKind::Broadcast || kind == OpKind::Reduce;
      if (panels && row.traffic.group == group) sum += row.traffic.bytes;
    }
    return sum;
  };
  const Prediction grid = predicted("tensor-grid-64");
  const Prediction small = predicted("tensor-grid-64", {"plan.micro_batch=8"});
  EXPECT_EQ(bytes(small, GroupKind::TensorRow), bytes(grid, GroupKind::TensorRow));
  EXPECT_EQ(bytes(small, GroupKind::TensorColumn), 4 * bytes(grid, GroupKind::TensorColumn));
  EXPECT_GT(small.step_s, 2 * grid.step_s);
  const std::vector<std::string> line{"plan.tensor_parallel_2d=null", "plan.tensor_parallel=64"};
  const Prediction one = predicted("tensor-grid-64", line);
  EXPECT_GT(grid.step_s, one.step_s);
  EXPECT_LT(grid.step_s, 1.1 * one.step_s);
  EXPECT_GT(one.memory.peak_allocated, 8 * grid.memory.peak_allocated);
  EXPECT_FALSE(one.memory.fits);
  std::vector<std::string> along = line;
  along.emplace_back("plan.sequence_parallel=true");
  const Prediction sequence = predicted("tensor-grid-64", along);
  EXPECT_LT(5 * sequence.memory.peak_allocated, 6 * grid.memory.peak_allocated);
  EXPECT_LT(sequence.step_s, grid.step_s);
}

// On four nodes a ring waits for their links, and gathers and exchanges over all ranks are exposed;
// heads exchanged inside a node leave a short ring across, which attention hides.
TEST(Teaching, HeadsInsideANodeAndARingAcrossAreTheFastest) {
  const Prediction both = predicted("context-both");
  for (const char* other : {"context-ring", "context-gather", "context-heads"}) {
    EXPECT_LT(both.step_s, predicted(other).step_s) << other;
  }
  for (const CommunicationRow& row : both.communication) {
    if (row.traffic.group == GroupKind::ContextHeads) {
      EXPECT_TRUE(is_scale_up(row.traffic.link));
    }
    if (row.traffic.group == GroupKind::ContextRing) {
      EXPECT_EQ(row.traffic.link, LinkKind::Nic);
    }
  }
}

TEST(Teaching, ZeroFurtherTradesMemoryForTheNetwork) {
  const auto from = [](const char* what) { return predicted(std::string("zero-") + what); };
  const auto gathered = [](const Prediction& p) {  // over all ranks
    double bytes = 0;
    for (const CommunicationRow& row : p.communication) {
      const bool gathers =
          row.traffic.group == GroupKind::Data && row.traffic.kind == OpKind::AllGather;
      if (gathers) bytes += static_cast<double>(row.traffic.bytes);
    }
    return bytes;
  };
  const Prediction whole = from("whole"), neighbours = from("neighbours");
  const Prediction copy = from("second-copy"), bits = from("eight-bits");
  EXPECT_EQ(gathered(neighbours), 0);
  EXPECT_NEAR(gathered(copy) / gathered(whole), 0.5, 0.02);
  EXPECT_NEAR(gathered(bits) / gathered(whole), 0.5, 0.02);
  EXPECT_LT(whole.memory.peak_device, copy.memory.peak_device);
  EXPECT_LT(copy.memory.peak_device, neighbours.memory.peak_device);
  const Prediction host = from("to-host"), drives = from("to-drives");
  EXPECT_LT(host.memory.peak_device, whole.memory.peak_device);
  EXPECT_EQ(drives.memory.peak_device, host.memory.peak_device);
  EXPECT_EQ(drives.memory.nvme, host.memory.host);
  EXPECT_LT(whole.step_s, host.step_s);
  EXPECT_LT(3 * host.step_s, drives.step_s);
}

TEST(Teaching, HeadsTravelLessThanKeysAndLogitsFillAGpu) {
  const auto moved = [](const Prediction& p) {
    double bytes = 0;
    for (const CommunicationRow& row : p.communication) {
      if (row.traffic.group == GroupKind::Context) bytes += static_cast<double>(row.traffic.bytes);
    }
    return bytes;
  };
  const Prediction heads = predicted("million-tokens-32");
  const auto way = [](const std::string& name) {
    return predicted("million-tokens-32", {"plan.context_parallel_algorithm=" + name});
  };
  EXPECT_TRUE(heads.memory.fits);
  EXPECT_LT(3 * moved(heads), moved(way("all_gather")));
  EXPECT_LT(3 * moved(heads), moved(way("ring")));
  const Prediction whole = predicted("million-tokens-32", {"plan.loss_chunks=1"});
  EXPECT_GT(whole.memory.peak_device, 2 * heads.memory.peak_device);
  EXPECT_FALSE(predicted("million-tokens-32", {"plan.recompute=none"}).memory.fits);
}

TEST(Teaching, LargePlansFit) {
  EXPECT_TRUE(predicted("3d-8-gpus").memory.fits);
  EXPECT_TRUE(predicted("gpt3-175b-1024").memory.fits);
  EXPECT_TRUE(predicted("fsdp-64").memory.fits);
  EXPECT_FALSE(predicted("fsdp-64", {"plan.recompute=none"}).memory.fits);
}

TEST(Teaching, DistanceDecidesWhatCrossesBetweenDataCentres) {
  const std::string across = "plan.rank_order=tp-cp-ep-dp-pp";
  const std::string near = "cluster.fabric.between_pods_latency_us=500";
  const std::string far = "cluster.fabric.between_pods_latency_us=15000";
  EXPECT_LT(predicted("two-data-centres", {far}).step_s,
            predicted("two-data-centres", {far, across}).step_s);
  EXPECT_GT(predicted("two-data-centres", {near}).step_s,
            predicted("two-data-centres", {near, across}).step_s);
}

}  // namespace
}  // namespace rehearse::sim
