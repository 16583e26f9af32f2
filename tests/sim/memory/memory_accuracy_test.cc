// SPDX-License-Identifier: Apache-2.0
// Predicted memory against what was measured and published.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "schedules/passes/planned/plan_order.h"
#include "sim/accuracy/validation.h"
#include "sim/memory/memory.h"

namespace rehearse::sim {
namespace {

constexpr double kGB = 1e9;

struct Errors {
  int cases = 0;
  double sum = 0, worst = 0;
  void add(double predicted, double measured) {
    const double error = std::abs(predicted / measured - 1);
    ++cases;
    sum += error;
    worst = std::max(worst, error);
  }
  double mean() const { return sum / cases; }
};

MemoryReport predict_case_memory(const Scenario& scenario) {
  Plan plan = scenario.plan;
  if (plan.micro_batch_auto) {  // torchtitan's default: as many micro-batches as stages
    plan.micro_batch = static_cast<std::int32_t>(
        plan.global_batch / (std::int64_t{plan.data_parallel} * plan.pipeline_parallel));
  }
  const Cluster cluster = read_cluster(scenario.cluster).value();
  return predict_memory({scenario.model, plan}, cluster, order_of(scenario.model, plan).value())
      .value();
}

double figure(const std::vector<Figure>& figures, const char* key) {
  for (const Figure& entry : figures) {
    if (entry.key == key && entry.measured) return *entry.measured;
  }
  return 0;
}

// Megatron-LM's own golden values. 7B: the bar of the project (steady 1.5 %, peak 3 %). The other
// limits are what was reached (docs/memory.md), so that a change that loses accuracy is seen.
TEST(MemoryAccuracy, MeetsMegatronsGoldenValues) {
  const ValidationFile file =
      read_validation("tests/data/validation/megatron_golden.json", {}).value();
  Errors large_peak, large_steady, tiny_peak, local_peak, own_fsdp;
  for (const ValidationCase& entry : file.cases) {
    if (!entry.scenario || entry.ranks.empty()) continue;
    Scenario scenario = *entry.scenario;
    if (scenario.model.latent.used() || scenario.model.experts.count > 0) continue;
    const bool large = scenario.model.hidden == 4096;
    const bool local = entry.id.find("gpt3_mcore_tp") != std::string::npos;
    if (local) {  // no Transformer Engine: unfused attention, which the plan does not say
      scenario.plan.flash_attention = false;
      scenario.plan.attention_kernel = AttentionKernel::Unfused;
    }
    const RankMemory rank = predict_case_memory(scenario).ranks.back();
    const auto& figures = entry.ranks.front().figures;
    Errors* group = &tiny_peak;
    if (large) group = &large_peak;
    if (local) group = &local_peak;
    if (scenario.plan.zero_stage == 3) group = &own_fsdp;
    group->add(static_cast<double>(rank.peak_allocated), figure(figures, "peak_allocated_bytes"));
    if (large) {
      large_steady.add(static_cast<double>(rank.steady_allocated),
                       figure(figures, "steady_allocated_bytes"));
    }
  }
  EXPECT_EQ(large_peak.cases, 6);
  EXPECT_LE(large_peak.worst, 0.03);
  EXPECT_LE(large_steady.worst, 0.015);
  EXPECT_EQ(tiny_peak.cases, 87);
  EXPECT_LE(tiny_peak.mean(), 0.035);
  EXPECT_EQ(own_fsdp.cases, 2);
  EXPECT_LE(own_fsdp.worst, 0.05);
  EXPECT_EQ(local_peak.cases, 13);
  EXPECT_LE(local_peak.mean(), 0.025);
}

TEST(MemoryAccuracy, MeetsTorchtitansReservedMemory) {
  const ValidationFile file = read_validation("tests/data/validation/torchtitan.json", {}).value();
  Errors reserved;
  for (const ValidationCase& entry : file.cases) {
    const double measured = figure(entry.figures, "peak_reserved_bytes");
    if (measured == 0) continue;
    reserved.add(static_cast<double>(predict_case_memory(*entry.scenario).peak_reserved), measured);
  }
  EXPECT_EQ(reserved.cases, 20);
  EXPECT_LE(reserved.mean(), 0.12);
}

TEST(MemoryAccuracy, DecidesEveryFitOfLlmFoundryAsMeasured) {
  const ValidationFile file = read_validation("tests/data/validation/llm_foundry.json", {}).value();
  int cases = 0;
  for (const ValidationCase& entry : file.cases) {
    const MemoryReport report = predict_case_memory(*entry.scenario);
    ++cases;
    EXPECT_EQ(report.fits, *entry.measured_fits)
        << entry.id << " " << static_cast<double>(report.peak_device) / kGB << " GB";
  }
  EXPECT_EQ(cases, 113);
}

// What cannot fit must not: states alone of 30B parameters on 8 cards of 40 GB take 61 GB of each.
TEST(MemoryAccuracy, RefusesWhatTheStatesAloneOverflow) {
  const ValidationFile file = read_validation("tests/data/validation/llm_foundry.json", {}).value();
  int cases = 0;
  for (ValidationCase entry : file.cases) {
    if (entry.id.find("a100_80gb-30b") == std::string::npos) continue;
    Scenario& scenario = *entry.scenario;
    Cluster cluster = read_cluster(scenario.cluster).value();
    cluster.gpu.memory_capacity_gb = 40;
    const MemoryReport report = predict_memory({scenario.model, scenario.plan}, cluster,
                                               order_of(scenario.model, scenario.plan).value())
                                    .value();
    EXPECT_FALSE(report.fits) << entry.id;
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

}  // namespace
}  // namespace rehearse::sim
