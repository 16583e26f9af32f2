// SPDX-License-Identifier: Apache-2.0
// A step in which the caching allocator empties its cache takes longer, and no other step does.
#include "sim/predict/corrected/remapping.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/report/fit_text.h"

namespace rehearse::sim {
namespace {

constexpr double kGib = 1 << 30;

// Llama 3 8B under FSDP on 8 GPUs, with memory of `gib` for everything.
Prediction predicted(double gib) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "models/llama3-8b.json", "cluster": "clusters/torchtitan-h100-96gb-500w.json",
          "plan": {"data_parallel": 8, "zero_stage": 3, "schedule": "none", "micro_batch": 2,
                   "global_batch": 16, "sequence_length": 8192, "recompute": "selective",
                   "runtime": "torchtitan", "compiled": false}})",
      "test.json", 1, {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  Cluster cluster = read_cluster(scenario.value().cluster).value();
  cluster.gpu.usable_memory_gib = gib;
  Result<Prediction> made = predict(scenario.value(), cluster);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

// Between what is allocated at most and what would stay reserved lies where the cache is emptied:
// at first once, then, a little lower, in every step.
class Remapping : public testing::Test {
 protected:
  const Prediction roomy_ = predicted(94);
  const double whole_ = static_cast<double>(roomy_.memory.peak_device) / kGib;
  const Prediction tight_ = predicted(whole_ - 4.7);
};

TEST_F(Remapping, TakesTimeInEveryStepThatEmptiesTheCacheAndInNoOther) {
  EXPECT_EQ(roomy_.memory.ranks[0].retries, 0);
  EXPECT_EQ(roomy_.remap_s, 0);
  EXPECT_EQ(retries_note(roomy_), "");

  const Prediction settled = predicted(whole_ - 0.5);
  EXPECT_TRUE(settled.memory.fits);
  EXPECT_GT(settled.memory.ranks[0].retries, 0);
  EXPECT_EQ(settled.memory.ranks[0].remapped_bytes(), 0);
  EXPECT_EQ(settled.step_s, roomy_.step_s);
  EXPECT_NE(retries_note(settled).find("later ones need it no more"), std::string::npos);

  EXPECT_TRUE(tight_.memory.fits);
  EXPECT_GT(tight_.remap_s, 0);
  EXPECT_GT(tight_.step_s, roomy_.step_s);
  // What it hides is at most all of it.
  EXPECT_LE(tight_.step_s, roomy_.step_s + tight_.remap_s + 1e-9);
  EXPECT_NE(retries_note(tight_).find("in every step"), std::string::npos);
}

// Times of all ops grow together by the bytes' time, 1 us per 1e9 B being 1e-6 ns per byte.
TEST_F(Remapping, AddsTheTimeOfItsBytesToTheOpsThatCauseIt) {
  const auto total = [&](const Pricing& pricing) {
    return std::accumulate(pricing.table.of_op.begin(), pricing.table.of_op.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int32_t cost) {
                             return sum +
                                    pricing.table.costs[static_cast<std::size_t>(cost)].time.value;
                           });
  };
  const MemoryReport& memory = tight_.memory;
  const auto bytes = static_cast<double>(memory.ranks[0].remapped_bytes());
  for (const std::int32_t us_per_gb : {0, 500, 1000}) {
    Pricing pricing = roomy_.pricing;
    price_remapping(memory, us_per_gb, roomy_.order, roomy_.schedule, pricing);
    EXPECT_NEAR(static_cast<double>(total(pricing) - total(roomy_.pricing)),
                bytes * us_per_gb * 1e-6, static_cast<double>(memory.ranks[0].remapped.size()));
    EXPECT_EQ(pricing.traffic.size(), pricing.table.costs.size());
    EXPECT_EQ(pricing.rests_on.size(), pricing.table.costs.size());
  }
  EXPECT_DOUBLE_EQ(remap_seconds(memory, 1000), bytes * 1e-12);
}

// Ranks of pipelines in two directions mirror each other and do alike; each says its own ops.
TEST(RemappingInTwoDirections, IsOfEachRanksOwnOps) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "models/llama3.2-3b.json", "cluster": "clusters/sail-a100-80gb.json",
          "plan": {"data_parallel": 1, "zero_stage": 3, "pipeline_parallel": 2, "prefetch": 2,
                   "document_length": {"mean": 200, "maximum": 4096}, "optimizer_bytes": 30,
                   "precision": "fp32", "schedule": "dualpipe", "micro_batch": 1,
                   "global_batch": 18, "sequence_length": 512}})",
      "test.json", 1, {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  const Result<Prediction> made = predict(scenario.value(), cluster.value());
  ASSERT_TRUE(made) << made.error().message;
  const Prediction& p = made.value();
  ASSERT_EQ(p.memory.ranks.size(), 2u);
  for (std::int32_t row = 0; row < 2; ++row) {
    const auto begin = static_cast<std::int64_t>(p.order.first_op({row})),
               end = begin + static_cast<std::int64_t>(p.order.program({row}).size());
    const std::vector<Mapping>& remapped = p.memory.ranks[static_cast<std::size_t>(row)].remapped;
    EXPECT_EQ(remapped.size(), p.memory.ranks[0].remapped.size());
    EXPECT_GE(remapped.size(), 2u);
    for (const Mapping& mapping : remapped) {
      if (!mapping.op) continue;
      EXPECT_GE(mapping.op.value, begin) << "row " << row;
      EXPECT_LT(mapping.op.value, end) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
