// SPDX-License-Identifier: Apache-2.0
// A prediction that takes how unevenly a run's experts were chosen, layer by layer.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

// Two stages of two layers; experts on two ranks each.
Prediction predicted(const std::string& routing, const std::string& more = "") {
  const std::string text =
      R"({"model": {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512,
                    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
                    "num_local_experts": 4, "vocab_size": 1024},
          "cluster": "dgx-h100", "plan": {"sequence_length": 4096, "micro_batch": 1,
          "global_batch": 8, "data_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 2)" +
      more + ", \"expert_routing\": " + routing + "}}";
  const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return std::move(made).value();
}

std::string file_of(const std::string& name, const std::string& layers) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << "{\"expert_rows\":[" + layers + "]}\n";
  return "\"file:" + path + '"';
}

// 6 of 8 rows on one of two ranks: 1.5 times the mean.
TEST(MeasuredRouting, EqualLayersAreTheFactor) {
  const std::string even = "[2,2,2,2]", uneven = "[3,3,1,1]";
  const auto all = [](const std::string& layer) {
    return layer + "," + layer + "," + layer + "," + layer;
  };
  EXPECT_EQ(predicted(file_of("uneven.jsonl", all(uneven))).step_s, predicted("1.5").step_s);
  EXPECT_EQ(predicted(file_of("even.jsonl", all(even))).step_s, predicted("\"balanced\"").step_s);
  // A capacity drops what is beyond it.
  EXPECT_EQ(predicted(file_of("uneven.jsonl", all(uneven)), ", \"expert_capacity\": 1.2").step_s,
            predicted("1.5", ", \"expert_capacity\": 1.2").step_s);
}

// The stage whose layers are uneven takes longer, the other as long as if all were even.
TEST(MeasuredRouting, EveryLayerHasItsOwn) {
  const auto forward_of = [](const Prediction& p, std::int32_t stage) {
    for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
      const Op& op = p.schedule.ops[i];
      if (op.kind == OpKind::Forward && op.stage.value == stage) {
        return p.pricing.table.costs[static_cast<std::size_t>(p.pricing.table.of_op[i])].time.value;
      }
    }
    return std::int64_t{0};
  };
  const Prediction even = predicted("\"balanced\""), uneven = predicted("1.5");
  const Prediction last =
      predicted(file_of("last.jsonl", "[2,2,2,2],[2,2,2,2],[3,3,1,1],[3,3,1,1]"));
  EXPECT_LT(forward_of(even, 1), forward_of(uneven, 1));
  EXPECT_NEAR(static_cast<double>(forward_of(last, 0)), static_cast<double>(forward_of(even, 0)),
              0.01 * static_cast<double>(forward_of(even, 0)));
  EXPECT_NEAR(static_cast<double>(forward_of(last, 1)), static_cast<double>(forward_of(uneven, 1)),
              0.01 * static_cast<double>(forward_of(uneven, 1)));
}

}  // namespace
}  // namespace rehearse::sim
