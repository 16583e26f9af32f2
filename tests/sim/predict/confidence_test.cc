// SPDX-License-Identifier: Apache-2.0
// The band of a whole prediction: what it goes by, and what the report says of it.
#include "sim/predict/confidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/report/report.h"

namespace rehearse::sim {
namespace {

struct Made {
  Scenario scenario;
  Cluster cluster;
  Prediction prediction;
};

// GPT-2 on two nodes: tensor 2, data 8.
Made made(const std::string& plan, const std::string& cluster = "dgx-a100-80gb") {
  const std::string text = R"({"model": "models/gpt2-355m.json", "cluster": "clusters/)" + cluster +
                           R"(.json", "gpus": 16, "plan": {"tensor_parallel": 2, "micro_batch": 1,)"
                           R"( "global_batch": 64, "sequence_length": 1024)" +
                           plan + "}}";
  Scenario scenario = parse_scenario(text, "tests/confidence.json", 1, {}).value();
  Cluster hardware = read_cluster(scenario.cluster).value();
  Prediction prediction = predict(scenario, hardware).value();
  return {std::move(scenario), std::move(hardware), std::move(prediction)};
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

TEST(Confidence, GoesByWhatTheStepIsLike) {
  const Made one = made(R"(, "runtime": "megatron", "attention_kernel": "flash2")");
  const StepFeatures f = features_of(one.prediction, one.cluster);
  EXPECT_EQ(f.gpu, "ampere 80");
  EXPECT_EQ(f.precision, "16 bit");
  EXPECT_EQ(f.runtime, "megatron");
  EXPECT_EQ(f.attention, "flash2");
  EXPECT_EQ(kinds_text(f.kinds), "tp host_bound");  // 1,024 tokens of a small model
  EXPECT_EQ(f.nic, one.cluster.nics.kind);
  EXPECT_GT(f.network_share, 0);
  EXPECT_LT(f.network_share, 1);
  EXPECT_GT(f.memory_fill, 0);
}

// Conditions under which predictions go wrong in a way of their own, one after another.
TEST(Confidence, SeesTheConditionsOfAStep) {
  const Made one = made(R"(, "runtime": "megatron", "attention_kernel": "flash2")");
  Cluster assumed = one.cluster;
  assumed.nics.assumed = true;
  EXPECT_TRUE(features_of(one.prediction, assumed).has(StepKind::AssumedNetwork));
  EXPECT_FALSE(features_of(one.prediction, one.cluster).has(StepKind::AssumedNetwork));

  const auto kinds = [](const std::string& model, int gpus, const std::string& plan) {
    const std::string text = R"({"model": ")" + model + R"(", "cluster": "dgx-h100", "gpus": )" +
                             std::to_string(gpus) + R"(, "plan": {"micro_batch": 1,
        "sequence_length": 4096, "runtime": "megatron", "attention_kernel": "flash3")" +
                             plan + "}}";
    const Scenario scenario = parse_scenario(text, "tests/confidence.json", 1, {}).value();
    const Cluster cluster = read_cluster(scenario.cluster).value();
    return kinds_text(features_of(predict(scenario, cluster).value(), cluster).kinds);
  };
  EXPECT_EQ(kinds("llama3-8b", 8, ""), "");
  EXPECT_EQ(kinds("llama3-8b", 256, R"(, "zero_stage": 1)"), "wide_shards");
  EXPECT_EQ(kinds("llama3-8b", 256, R"(, "zero_stage": 0)"), "");
  const std::string experts = R"(, "expert_parallel": 8)";
  EXPECT_EQ(kinds("mixtral-8x7b", 8, experts), "experts learned_routing");
  for (const char* said : {R"("expert_routing": "balanced")", R"("expert_routing": 1.2)",
                           R"("expert_capacity": 1.25)"}) {
    EXPECT_EQ(kinds("mixtral-8x7b", 8, experts + ", " + said), "experts") << said;
  }
}

TEST(Confidence, SaysWhatWasLeftToDefaults) {
  const Made open = made("");
  EXPECT_TRUE(has(open.prediction.band.defaulted, "runtime"));
  EXPECT_TRUE(has(open.prediction.band.defaulted, "attention_kernel"));
  const Made said = made(R"(, "runtime": "megatron", "flash_attention": true)");
  EXPECT_TRUE(said.prediction.band.defaulted.empty());
  EXPECT_EQ(open.prediction.step_s, said.prediction.step_s);
  EXPECT_GT(open.prediction.band.half_width(), said.prediction.band.half_width());
}

// Named software on a measured GPU is narrowest; any framework, and a GPU that nobody measured, are
// wider.
TEST(Confidence, IsWidestForWhatNobodyMeasured) {
  const std::string said = R"(, "attention_kernel": "flash2", "runtime": )";
  const Made known = made(said + R"("megatron")", "dgx-h100");
  EXPECT_TRUE(known.prediction.band.unseen.empty());
  EXPECT_FALSE(known.prediction.band.nearest.empty());
  const Made any = made(said + R"("generic")", "dgx-h100");
  EXPECT_EQ(any.prediction.band.unseen, std::vector<std::string>{"this framework"});
  EXPECT_GT(any.prediction.error_band, known.prediction.error_band);
  const Made other = made(said + R"("megatron")", "rtx4090-8");
  EXPECT_FALSE(other.prediction.band.unseen.empty());
  EXPECT_GT(other.prediction.error_band, known.prediction.error_band);
}

TEST(Confidence, IsInTheReport) {
  const Made one = made(R"(, "runtime": "generic")");
  const auto report = nlohmann::json::parse(report_json(one.prediction, one.scenario, one.cluster));
  const auto& confidence = report["confidence"];
  EXPECT_LE(confidence["low_s"], report["step_time_s"]);
  EXPECT_GE(confidence["high_s"], report["step_time_s"]);
  EXPECT_NEAR(confidence["error_band"].get<double>(), one.prediction.band.half_width(), 1e-12);
  EXPECT_EQ(confidence["unseen"][0], "this framework");
  EXPECT_EQ(confidence["defaulted"][0], "attention_kernel");
  ASSERT_FALSE(confidence["nearest"].empty());
  EXPECT_TRUE(confidence["nearest"][0].contains("source"));
  EXPECT_GT(confidence["nearest"][0]["cases"].get<int>(), 0);
  const std::string text = report_text(one.prediction, one.scenario, one.cluster);
  EXPECT_NE(text.find("9 in 10 between"), std::string::npos);
  EXPECT_NE(text.find("no measured step of this kind (this framework)"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
