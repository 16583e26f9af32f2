// SPDX-License-Identifier: Apache-2.0
// The report's `communication` counts the tokens that travel to their experts and home. One layer
// of 64 experts on 16 ranks of two nodes; n = 256 tokens of h = 512 values of 2 bytes to k = 4
// experts each: all_to_all sends n k h B of a rank's buffer four times, in dispatch and combine,
// forward and backward.
#include <gtest/gtest.h>

#include <string>

#include "sim/formulas/expert_routing.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

// Without what counts, weights and maps take: 4 to 12 bytes beside each copy's 1,024.
std::int64_t bytes_with(const std::string& plan) {
  const std::string text =
      R"({"model": {"model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1024,
          "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8,
          "num_local_experts": 64, "num_experts_per_tok": 4, "vocab_size": 1024,
          "sliding_window": null}, "cluster": "dgx-h100", "gpus": 16,
          "plan": {"micro_batch": 1, "global_batch": 16, "sequence_length": 256,
          "expert_parallel": 16, "runtime": "megatron", )" +
      plan + "}}";
  const Result<Scenario> scenario = parse_scenario(text, "x.json", 1, {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  const Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  for (const CommunicationRow& row : made.value().communication) {
    if (row.traffic.group == GroupKind::Expert && row.traffic.kind == OpKind::AllToAll) {
      return row.traffic.bytes;
    }
  }
  return 0;
}

constexpr double kCopies = 4.0 * 256 * 4 * 512 * 2, kBeside = 0.012;

TEST(TokensSent, AllToAllSendsEveryCopy) {
  const double sent = static_cast<double>(bytes_with(R"("expert_dispatch": "all_to_all")"));
  EXPECT_NEAR(sent / kCopies, 1, kBeside);
}

// D(16) of 16 ranks instead of k = 4 copies.
TEST(TokensSent, DeduplicatedSendsOneCopyForEachRank) {
  const double visited = expected_parts({.experts = 64, .per_token = 4}, 16);
  ASSERT_LT(visited, 3.8);
  const double sent = static_cast<double>(bytes_with(R"("expert_dispatch": "deduplicated")"));
  EXPECT_NEAR(sent / (kCopies * visited / 4), 1, kBeside);
}

TEST(TokensSent, WhatACapacityDropsDoesNotTravel) {
  const double sent = static_cast<double>(bytes_with(R"("expert_capacity": {"drop": 0.5})"));
  EXPECT_NEAR(sent / (kCopies / 2), 1, 2 * kBeside);
}

}  // namespace
}  // namespace rehearse::sim
