// SPDX-License-Identifier: Apache-2.0
// The day on which a plan breaks that fits at even load: the busiest rank's rows, the longest
// sample, the allocator's margin; and what would hold.
#include "sim/memory/bad_day.h"

#include <gtest/gtest.h>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/report/fit_text.h"
#include "sim/search/what_holds.h"

namespace rehearse::sim {
namespace {

const char* const kExperts = R"("model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 64)";
const char* const kDense = R"("model": "llama3-8b", "cluster": "dgx-h100", "gpus": 8)";

std::string text_of(const std::string& what, const std::string& plan) {
  return "{" + what + R"(, "plan": {"micro_batch": 2, "zero_stage": 1, )" + plan + "}}";
}
std::string experts(const std::string& more) {
  return text_of(kExperts, R"("expert_parallel": 8, "pipeline_parallel": 4, "global_batch": 512,
      "sequence_length": 4096, "runtime": "megatron", "attention_kernel": "flash3", )" +
                               more);
}
std::string dense(const std::string& more) {
  return text_of(kDense, R"("global_batch": 32, "sequence_length": 4096, "runtime": "megatron",
      "attention_kernel": "flash3", )" +
                             more);
}

Scenario scenario_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Result<Scenario> read = parse_scenario(text, "test", 1, {.overrides = overrides});
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return read ? std::move(read).value() : Scenario{};
}
// On GPUs of `capacity` [B]; 0: as many as there may be.
Cluster cluster_of(const Scenario& scenario, double capacity) {
  Result<Cluster> read = read_cluster(scenario.cluster);
  EXPECT_TRUE(read);
  Cluster cluster = std::move(read).value();
  cluster.gpu.usable_memory_gib = capacity > 0 ? capacity / 1073741824.0 : 1e6;
  return cluster;
}
Prediction predicted(const std::string& text, double capacity = 0) {
  const Scenario scenario = scenario_of(text);
  Result<Prediction> made = predict(scenario, cluster_of(scenario, capacity), {.timeline = false});
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made).value();
}
MemoryReport memory(const std::string& text, double capacity = 0) {
  return predicted(text, capacity).memory;
}
double bytes(std::int64_t of) {
  return static_cast<double>(of);
}

// Rows of the busiest rank: what grows with them grows in proportion.
TEST(BadDay, PeaksFollowTheRoutingOfExperts) {
  const auto peak = [](const std::string& routing) {
    return bytes(memory(experts("\"expert_routing\": " + routing)).peak_allocated);
  };
  const double even = peak("\"balanced\""), random = peak("\"uniform\"");
  EXPECT_LE(even, random);
  EXPECT_LT(random, peak("1.5"));
  EXPECT_GT(peak("1.5"), 1.02 * even);
  EXPECT_NEAR(peak("2") - even, 2 * (peak("1.5") - even), 0.02 * (peak("2") - even));
  // States do not, and a model without experts has no busiest rank.
  const MemoryReport balanced = memory(experts(R"("expert_routing": "balanced")"));
  const MemoryReport factor = memory(experts("\"expert_routing\": 2"));
  EXPECT_EQ(balanced.ranks[0].parts.optimizer, factor.ranks[0].parts.optimizer);
  EXPECT_EQ(memory(dense("\"recompute\": \"none\"")).load.rows, 1);
}

// A capacity is what a rank reserves, however the routers choose.
TEST(BadDay, ACapacityBoundsTheBusiestRank) {
  const MemoryReport capped =
      memory(experts(R"("expert_capacity": 1.25, "expert_routing": "balanced")"));
  const MemoryReport uneven = memory(experts(R"("expert_capacity": 1.25, "expert_routing": 4)"));
  EXPECT_EQ(capped.peak_allocated, uneven.peak_allocated);
  EXPECT_LT(uneven.peak_allocated, memory(experts("\"expert_routing\": 4")).peak_allocated);
}

// Between even load and the busiest rank's a plan is tight: it fits, the peak is beyond the
// capacity, the day has a name. Below even load it does not fit, well above the busiest it does.
TEST(BadDay, TightIsBetweenEvenLoadAndTheBusiestRank) {
  const std::string factor = experts("\"expert_routing\": 2");
  const double even = bytes(memory(experts(R"("expert_routing": "balanced")")).peak_device);
  const double busiest = bytes(memory(factor).peak_device);
  ASSERT_GT(busiest, 1.1 * even);

  const MemoryReport tight = memory(factor, (even + busiest) / 2);
  EXPECT_EQ(tight.verdict(), Verdict::Tight);
  EXPECT_TRUE(tight.fits);
  EXPECT_EQ(tight.bad_day.cause, BadDayCause::BusiestRank);
  EXPECT_GT(tight.bad_day.peak_device, tight.capacity);
  EXPECT_LE(tight.even_peak_device, tight.capacity);
  EXPECT_EQ(tight.load.rows, 2);

  EXPECT_EQ(memory(factor, 0.7 * even).verdict(), Verdict::No);
  EXPECT_EQ(memory(factor, 2 * busiest).verdict(), Verdict::Yes);
  EXPECT_EQ(memory(experts(R"("expert_routing": "balanced")"), (even + busiest) / 2).verdict(),
            Verdict::Yes);
}

// The verdict never gets better as the capacity shrinks.
TEST(BadDay, VerdictsAreInOrderOfTheCapacity) {
  const std::string factor = experts("\"expert_routing\": 1.5");
  const double busiest = bytes(memory(factor).peak_device);
  Verdict last = Verdict::Yes;
  bool tight = false;
  for (double share = 1.4; share > 0.6; share -= 0.05) {
    const Verdict verdict = memory(factor, share * busiest).verdict();
    EXPECT_GE(verdict, last) << share;
    last = verdict;
    tight |= verdict == Verdict::Tight;
  }
  EXPECT_TRUE(tight);
  EXPECT_EQ(last, Verdict::No);
}

// A sample that no sequence holds is a step of its own; one that a sequence holds changes nothing.
TEST(BadDay, TheLongestSampleIsADayOfItsOwn) {
  const std::string one = R"("document_length": {"mean": 1024, "maximum": )";
  const MemoryReport whole = memory(dense(R"("document_length": 1024)"));
  const MemoryReport held = memory(dense(one + "4096}"));
  EXPECT_EQ(whole.peak_device, held.peak_device);
  EXPECT_EQ(held.load.sample, 0);
  const double usual = bytes(whole.peak_device);
  const MemoryReport day = memory(dense(one + "16384}"), 1.1 * usual);
  EXPECT_EQ(day.peak_device, whole.peak_device);
  EXPECT_EQ(day.verdict(), Verdict::Tight);
  EXPECT_EQ(day.bad_day.cause, BadDayCause::LongestSample);
  EXPECT_GT(day.bad_day.peak_device, day.capacity);
  EXPECT_EQ(memory(dense(one + "16384}"), 6 * usual).verdict(), Verdict::Yes);
}

TEST(BadDay, TheAllocatorNeedsAMargin) {
  const std::string plan = dense("\"recompute\": \"none\"");
  const double peak = bytes(memory(plan).peak_device);
  EXPECT_EQ(memory(plan, 1.02 * peak).bad_day.cause, BadDayCause::AllocatorMargin);
  EXPECT_EQ(memory(plan, 1.02 * peak).verdict(), Verdict::Tight);
  EXPECT_EQ(memory(plan, 1.2 * peak).verdict(), Verdict::Yes);
}

// A peak before step 0 comes once, and before the allocator has any holes.
TEST(BadDay, APeakBeforeTheFirstStepNeedsNone) {
  const std::string plan =
      text_of(R"("model": "llama3-8b", "cluster": "dgx-h100", "gpus": 64)",
              R"("global_batch": 128, "sequence_length": 512, "runtime": "megatron",
         "attention_kernel": "flash3", "recompute": "full")");
  const MemoryReport roomy = memory(plan);
  ASSERT_TRUE(roomy.at_building());
  EXPECT_EQ(memory(plan, 1.01 * bytes(roomy.peak_device)).verdict(), Verdict::Yes);
  EXPECT_EQ(memory(plan, 0.99 * bytes(roomy.peak_device)).verdict(), Verdict::No);
}

// What is said to hold does: predicted again with that change, the verdict is yes.
TEST(BadDay, WhatHoldsHolds) {
  const std::string text = experts("\"expert_routing\": 2");
  const double even = bytes(memory(experts(R"("expert_routing": "balanced")")).peak_device);
  const double busiest = bytes(memory(text).peak_device);
  const double capacity = 0.4 * even + 0.6 * busiest;
  const Cluster cluster = cluster_of(scenario_of(text), capacity);
  Prediction tight = predicted(text, capacity);
  const auto with = [&](const std::vector<std::string>& overrides) {
    return parse_scenario(text, "test", 1, {.overrides = overrides});
  };
  tight.memory.holds = what_holds(tight, cluster, with);
  ASSERT_FALSE(tight.memory.holds.empty());
  EXPECT_EQ(tight.memory.holds.front().key, "expert_capacity");
  for (const Remedy& remedy : tight.memory.holds) {
    const Result<Scenario> changed = with({"plan." + remedy.key + "=" + remedy.to});
    ASSERT_TRUE(changed) << remedy.key << ' ' << remedy.to;
    const MemoryReport then = predict(changed.value(), cluster, {.timeline = false}).value().memory;
    EXPECT_EQ(then.verdict(), Verdict::Yes) << remedy.key << ' ' << remedy.to;
    EXPECT_EQ(then.peak_device, remedy.peak_device);
  }
  const std::string said = tight_text(tight);
  EXPECT_NE(said.find("the busiest rank has 2.00 times the mean rows"), std::string::npos) << said;
  EXPECT_NE(said.find("--set plan.expert_capacity=" + tight.memory.holds.front().to),
            std::string::npos)
      << said;
  EXPECT_EQ(tight_text(predicted(text)), "");
  EXPECT_EQ(bad_day_json(memory(text)), "null");
}

}  // namespace
}  // namespace rehearse::sim
