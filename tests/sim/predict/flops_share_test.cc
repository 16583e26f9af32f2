// SPDX-License-Identifier: Apache-2.0
// A share is at most one: MFU and HFU of every shipped scenario on every shipped cluster, of
// sequences where attention is all, and what would price another model is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".json") files.push_back(file.path().string());
  }
  std::ranges::sort(files);
  return files;
}

// Checks each pair that is a plan at all; returns the number of those.
int expect_shares(const std::vector<std::string>& scenarios, const std::vector<std::string>& set) {
  int predicted = 0;
  for (const std::string& file : scenarios) {
    for (const std::string& cluster_file : files_of("scenarios/clusters")) {
      const Result<Scenario> scenario = read_scenario(
          file, {.overrides = set, .cluster = std::filesystem::absolute(cluster_file).string()});
      if (!scenario) continue;
      const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
      if (!cluster) continue;
      const Result<Prediction> p = predict(scenario.value(), cluster.value(), {.memory = false});
      if (!p) continue;
      ++predicted;
      if (!p.value().peak_flops) continue;
      EXPECT_LE(*p.value().mfu(), *p.value().hfu()) << file << " on " << cluster_file;
      EXPECT_LE(*p.value().hfu(), 1.0) << file << " on " << cluster_file;
      EXPECT_GT(*p.value().mfu(), 0.0) << file << " on " << cluster_file;
    }
  }
  return predicted;
}

TEST(FlopsShare, OfShippedScenariosOnShippedClustersIsAtMostOne) {
  EXPECT_GT(expect_shares(files_of("scenarios"), {}), 300);
}

// Megatron's convention counts the whole square, attention computes half of it: 128 Ki tokens.
TEST(FlopsShare, OfLongSequencesIsAtMostOne) {
  const std::vector<std::string> set{"model=models/llama2-7b.json", "plan.sequence_length=131072",
                                     "plan.micro_batch=1", "plan.precision=bf16"};
  EXPECT_GT(expect_shares({"scenarios/fsdp-64.json"}, set), 10);
}

// Where queries see 128 keys each, time and FLOPs are those of 128 keys.
TEST(FlopsShare, OfShortWindowsIsAtMostOne) {
  const std::vector<std::string> set{"model=models/mistral-7b.json", "model.sliding_window=128",
                                     "plan.sequence_length=131072", "plan.micro_batch=1",
                                     "plan.precision=bf16"};
  EXPECT_GT(expect_shares({"scenarios/fsdp-64.json"}, set), 10);
}

}  // namespace
}  // namespace rehearse::sim
