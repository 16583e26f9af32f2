// SPDX-License-Identifier: Apache-2.0
// A key that another makes meaningless is said, and is meaningless: the same prediction without it.
#include <gtest/gtest.h>

#include <filesystem>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"

namespace rehearse {
namespace {

Scenario read(const std::vector<std::string>& set) {
  ScenarioOptions how;
  for (const char* base :
       {"plan.tensor_parallel=1", "plan.pipeline_parallel=1", "plan.schedule=none",
        "plan.virtual_stages=1", "plan.sequence_parallel=false", "plan.zero_stage=0",
        "plan.precision=bf16"}) {
    how.overrides.emplace_back(base);
  }
  how.overrides.insert(how.overrides.end(), set.begin(), set.end());
  Result<Scenario> scenario = read_scenario("scenarios/tiny-gpt-4-ranks.json", how);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario ? std::move(scenario).value() : Scenario{};
}

// What there is to predict, without notes and plan, which repeat the key.
std::string predicted(const Scenario& scenario) {
  const Result<sim::Cluster> cluster = sim::read_cluster(scenario.cluster);
  EXPECT_TRUE(cluster);
  const Result<sim::Prediction> p = sim::predict(scenario, cluster.value());
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  std::string text = sim::report_json(p.value(), scenario, cluster.value());
  text.resize(text.find("\"notes\""));
  return text;
}

struct Case {
  const char* key;    // set beside `with`
  const char* other;  // its default
  std::vector<std::string> with;
};

TEST(PlanNotes, WhatIsSaidToChangeNothingChangesNothing) {
  const Case cases[] = {
      {"plan.sequence_parallel=true", "plan.sequence_parallel=false", {"gpus=4"}},
      {"plan.expert_dispatch=all_gather", "plan.expert_dispatch=null", {"gpus=4"}},
      {"plan.expert_routing=1.5", "plan.expert_routing=null", {"gpus=4"}},
      {"plan.bucket_bytes=4096", "plan.bucket_bytes=null", {"gpus=4", "plan.zero_stage=3"}},
      {"plan.shard_group=2", "plan.shard_group=null", {"gpus=4"}},
      {"plan.secondary_shard_group=2",
       "plan.secondary_shard_group=null",
       {"gpus=4", "plan.zero_stage=1"}},
      {"plan.quantized_gather=8", "plan.quantized_gather=16", {"gpus=4", "plan.zero_stage=1"}},
      {"plan.prefetch=3", "plan.prefetch=null", {"gpus=4", "plan.zero_stage=1"}},
      {"plan.prefetch=3",
       "plan.prefetch=null",
       {"gpus=4", "plan.zero_stage=3", "plan.overlap.parameter_gather=false"}},
      {"plan.overlap.gradient_reduce=true", "plan.overlap.gradient_reduce=false", {"gpus=1"}},
      {"plan.overlap.parameter_gather=true", "plan.overlap.parameter_gather=false", {"gpus=1"}},
      {"plan.overlap.parameter_gather=true", "plan.overlap.parameter_gather=false", {"gpus=4"}},
      {"plan.overlap.tensor_parallel=true", "plan.overlap.tensor_parallel=null", {"gpus=4"}},
      {"plan.data_parallel_algorithm=parameter_server",
       "plan.data_parallel_algorithm=all_reduce",
       {"gpus=1"}},
      {"plan.precision=fp16",
       "plan.precision=bf16",
       {"gpus=4", "plan.runtime=fsdp", "plan.zero_stage=3"}},
      {"plan.recompute=selective", "plan.recompute=none", {"gpus=4"}},
      {"plan.recompute=[\"attention_core\"]", "plan.recompute=none", {"gpus=4"}},
  };
  for (const Case& one : cases) {
    std::vector<std::string> with = one.with, without = one.with;
    with.emplace_back(one.key);
    without.emplace_back(one.other);
    const Scenario a = read(with), b = read(without);
    SCOPED_TRACE(std::string(one.key) + " with " + one.with.back());
    ASSERT_EQ(a.warnings.size(), 1U);
    const std::string key = std::string(one.key).substr(0, std::string(one.key).find('='));
    EXPECT_TRUE(a.warnings.front().starts_with(key + " changes nothing: ")) << a.warnings.front();
    EXPECT_TRUE(b.warnings.empty()) << b.warnings.front();
    if (key != "plan.precision") {
      EXPECT_EQ(predicted(a), predicted(b));
    } else {  // its peak's name alone
      const std::string x = predicted(a), y = predicted(b);
      EXPECT_EQ(x.substr(x.find("bubble_ratio")), y.substr(y.find("bubble_ratio")));
    }
  }
}

// Where attention keeps its scores, or selective recomputation is of more than attention, it does
// something.
TEST(PlanNotes, SelectiveRecomputationThatChangesSomethingIsNotCalledIdle) {
  for (const char* with :
       {"plan.flash_attention=false", "plan.runtime=fsdp", "plan.runtime=rehearse"}) {
    const Scenario none = read({"gpus=4", with, "plan.recompute=none"}),
                   selective = read({"gpus=4", with, "plan.recompute=selective"});
    EXPECT_TRUE(selective.warnings.empty()) << with << ": " << selective.warnings.front();
    EXPECT_NE(predicted(none), predicted(selective)) << with;
  }
}

TEST(PlanNotes, ShippedScenariosAreSilent) {
  for (const auto& file : std::filesystem::directory_iterator("scenarios")) {
    if (file.path().extension() != ".json") continue;
    const Result<Scenario> scenario = read_scenario(file.path().string(), {});
    ASSERT_TRUE(scenario) << file.path();
    for (const std::string& line : scenario.value().warnings) {
      EXPECT_EQ(line.find("changes nothing"), std::string::npos) << file.path() << ": " << line;
    }
  }
}

}  // namespace
}  // namespace rehearse
