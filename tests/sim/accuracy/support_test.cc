// SPDX-License-Identifier: Apache-2.0
// What predictions are said to rest on follows the tables that price them.
#include "sim/accuracy/support.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

std::vector<SupportRow> rows_of(const std::string& model, const std::string& cluster) {
  const Result<Cluster> read = read_cluster({.path = "scenarios/clusters/" + cluster + ".json"});
  EXPECT_TRUE(read);
  const auto rows = support_rows({model}, {read.value()});
  EXPECT_TRUE(rows) << (rows ? "" : rows.error().message);
  return rows ? rows.value() : std::vector<SupportRow>{};
}

SupportRow row_of(const std::string& model, const std::string& cluster, ComputeType type) {
  for (const SupportRow& row : rows_of(model, cluster)) {
    if (row.precision == type) return row;
  }
  ADD_FAILURE();
  return {};
}

// What the prediction of the same step says of itself; empty: its error.
Result<Prediction> predicted(const std::string& model, const std::string& cluster,
                             const std::string& precision) {
  const std::string text = R"({"model": "models/)" + model + R"(.json", "cluster": "clusters/)" +
                           cluster +
                           R"(.json", "gpus": 1, "plan": {"micro_batch": 1, "global_batch": 256,
                             "sequence_length": 4096, "precision": ")" +
                           precision + R"("}})";
  const Result<Scenario> scenario = parse_scenario(text, "t", 1, {});
  if (!scenario) return scenario.error();
  const Result<Cluster> read = read_cluster(scenario.value().cluster);
  if (!read) return read.error();
  return predict(scenario.value(), read.value());
}

// A step adds the optimizer, which is a formula and takes about a quarter of what the kernels of
// one micro-batch take: of 256 micro-batches less than 1 %.
TEST(Support, IsWhatThePredictionOfTheStepRestsOn) {
  for (const char* cluster : {"dgx-h100", "dgx-b200", "pcie-a100-80gb-8", "mi300x-8"}) {
    const SupportRow row = row_of("llama3-8b", cluster, ComputeType::Fp16);
    const Result<Prediction> p = predicted("llama3-8b", cluster, "fp16");
    ASSERT_TRUE(p) << p.error().message;
    const auto from_tables = [](const auto& level) { return level[0] + level[1]; };
    const double kernels = from_tables(row.rests_on.level),
                 step = from_tables(p.value().confidence);
    EXPECT_LE(step, kernels + 1e-9) << cluster;
    EXPECT_GE(step, 0.99 * kernels) << cluster;
    EXPECT_NEAR(row.rests_on.sum(), 1, 1e-9);
  }
}

double tables_share(const SupportRow& row) {
  return row.rests_on.level[0] + row.rests_on.level[1];
}

// Steps of dense models on H100s were measured in 16 bit, none of anything on a MI300X in 8 bit:
// the words follow scenarios/accuracy, the kind of model and the tables.
TEST(Support, IsMeasuredWhereStepsLikeItWere) {
  const SupportRow dense = row_of("llama3-8b", "dgx-h100", ComputeType::Bf16);
  EXPECT_EQ(dense.level(), "measured");
  EXPECT_GE(dense.steps.like, 8);
  EXPECT_GT(dense.steps.within, 0);
  EXPECT_LT(dense.steps.within, 0.5);
  const SupportRow experts = row_of("mixtral-8x7b", "dgx-h100", ComputeType::Bf16);
  EXPECT_EQ(experts.steps.all, dense.steps.all);
  EXPECT_EQ(experts.steps.like + dense.steps.like, dense.steps.all);
  const SupportRow none = row_of("llama3-8b", "mi300x-8", ComputeType::Fp32);
  EXPECT_EQ(none.steps.all, 0);
  EXPECT_EQ(none.level(), "formula");
}

// Without measured steps, and without the table of the GPU's products, the same row is a formula.
TEST(Support, ChangesWithTheTables) {
  ASSERT_GE(tables_share(row_of("llama3-8b", "pcie-a100-80gb-8", ComputeType::Bf16)), 0.5);
  const auto copy = std::filesystem::path(testing::TempDir()) / "support_scenarios";
  std::filesystem::remove_all(copy);
  std::filesystem::copy("scenarios", copy, std::filesystem::copy_options::recursive);
  const auto kernels = copy / "kernels" / "gemm_a100_pcie.json";
  std::ofstream(kernels) << R"({"schema": "gemm_table/1", "rows": []})";
  setenv("REHEARSE_SCENARIOS", copy.c_str(), 1);
  SupportRow row = row_of("llama3-8b", "pcie-a100-80gb-8", ComputeType::Bf16);
  unsetenv("REHEARSE_SCENARIOS");
  EXPECT_EQ(tables_share(row), 0);
  row.steps = {};
  EXPECT_EQ(row.level(), "formula");
}

TEST(Support, IsRefusedInThePredictionsWords) {
  const SupportRow row = row_of("llama3-8b", "dgx-h100", ComputeType::Nvfp4);
  EXPECT_EQ(row.level(), "refused");
  const Result<Prediction> p = predicted("llama3-8b", "dgx-h100", "nvfp4");
  ASSERT_FALSE(p);
  EXPECT_NE(p.error().message.find(row.remark), std::string::npos) << p.error().message;
}

TEST(Support, SaysWhatIsPricedInThePlaceOfProductsThatAGpuLacks) {
  const SupportRow row = row_of("llama3-8b", "dgx-a100-80gb", ComputeType::Fp8);
  EXPECT_NE(row.level(), "refused");
  const Result<Prediction> p = predicted("llama3-8b", "dgx-a100-80gb", "fp8");
  ASSERT_TRUE(p);
  EXPECT_NE(std::ranges::find(p.value().warnings, row.remark), p.value().warnings.end())
      << row.remark;
}

// Every shipped model, GPU and precision has one row with one of four words; the GPUs are those of
// the clusters.
TEST(Support, HasEveryModelGpuAndPrecision) {
  const auto clusters = clusters_by_gpu();
  ASSERT_TRUE(clusters);
  EXPECT_GE(clusters.value().size(), 20u);
  const auto rows = support_rows({"gpt2-124m", "deepseek-v3", "llama4-scout"}, clusters.value());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows.value().size(), 3 * 6 * clusters.value().size());
  for (const SupportRow& row : rows.value()) {
    EXPECT_TRUE(row.level() == "measured" || row.level() == "interpolated" ||
                row.level() == "formula" || row.level() == "refused");
    EXPECT_EQ(row.level() == "refused", row.refused);
    if (row.refused) {
      EXPECT_FALSE(row.remark.empty());
    } else {
      EXPECT_NEAR(row.rests_on.sum(), 1, 1e-9) << row.model << row.gpu;
    }
  }
  const auto json = nlohmann::json::parse(support_json(rows.value()));
  EXPECT_EQ(json["rows"].size(), rows.value().size());
  EXPECT_EQ(json["schema"], "rehearse.support/1");
}

}  // namespace
}  // namespace rehearse::sim
