// SPDX-License-Identifier: Apache-2.0
// A generation of GPUs is files alone: a made-up one, in a copy of the shipped data, is found by
// what reads clusters, kernels, collectives and precisions, and by what names a measured GPU.
// Files of before `vendor` and `product_types` mean what they meant.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/generations.h"
#include "schedules/scenario/scenario.h"
#include "sim/compute/kernel_scalars.h"
#include "sim/network/collective_model.h"
#include "sim/predict/confidence.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {
namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  Result<std::string> text = read_text_file(path.string(), 1 << 24);
  EXPECT_TRUE(text) << path;
  return text ? text.value() : "";
}

// The file with `to` in place of `from`, which must stand in it.
void change(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = text_of(path);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << path << " lacks " << from;
  std::ofstream(path) << text.replace(at, from.size(), to);
}

// A copy of scenarios/ with the generation "orion", made of the B200's files.
class Generation : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(data_);
    fs::copy("scenarios", data_, fs::copy_options::recursive);
    change(data_ / "kernels/generations.json", R"({"architecture": "volta")",
           R"({"architecture": "orion", "vendor": "nvidia", "capabilities": [[200, 209]]},
    {"architecture": "volta")");
    fs::copy_file(data_ / "kernels/blackwell.json", data_ / "kernels/orion.json");
    change(data_ / "kernels/orion.json", R"("architecture": "blackwell")",
           R"("architecture": "orion")");
    change(data_ / "kernels/collectives.json", R"({"system": "a100_nvswitch",)",
           R"({"system": "orion_nvswitch", "architecture": "orion", "scale_up": "nvswitch",
   "same_as": "b200_nvswitch", "in_switch_from": 3},
  {"system": "a100_nvswitch",)");
    fs::copy_file(data_ / "clusters/dgx-b200.json", data_ / "clusters/orion.json");
    change(data_ / "clusters/orion.json", R"("id": "dgx-b200")", R"("id": "orion")");
    change(data_ / "clusters/orion.json", R"("architecture": "blackwell")",
           R"("architecture": "orion")");
    change(data_ / "clusters/orion.json", R"("compute_capability": 100)",
           R"("compute_capability": 200)");
    setenv("REHEARSE_SCENARIOS", data_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("REHEARSE_SCENARIOS");
    fs::remove_all(data_);
  }

  Result<Cluster> read() const {
    return read_cluster({.path = (data_ / "clusters/orion.json").string()});
  }
  fs::path data_ = fs::path(::testing::TempDir()) / "generation_test";
};

Result<Prediction> predicted(const std::string& cluster, const std::string& precision) {
  const Result<Scenario> scenario =
      parse_scenario(R"({"model": "gpt2-124m", "cluster": ")" + cluster +
                         R"(", "plan": {"data_parallel": 8,
              "zero_stage": 1, "micro_batch": 1, "global_batch": 16, "precision": ")" +
                         precision + "\"}}",
                     "scenarios/x.json", 1, {});
  if (!scenario) return scenario.error();
  const Result<Cluster> hardware = read_cluster(scenario.value().cluster);
  if (!hardware) return hardware.error();
  return predict(scenario.value(), hardware.value());
}

TEST_F(Generation, IsFoundByAllThatReadGenerations) {
  const Result<Cluster> cluster = read();
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster.value().gpu.architecture, "orion");
  const KernelScalars scalars = read_kernel_scalars(cluster.value()).value();
  EXPECT_EQ(scalars.level, CostLevel::Formula);
  EXPECT_EQ(scalars.source, (data_ / "kernels/orion.json").string());
  const CollectiveModel collectives =
      make_collective_model(shipped_collective_tables().value(), cluster.value());
  EXPECT_EQ(collectives.system.name, "orion_nvswitch");
  EXPECT_EQ(collectives.system.in_switch_from, 3);
  EXPECT_FALSE(collectives.fits.empty());  // b200_nvswitch's
  const std::vector<GpuGeneration> all = shipped_generations().value();
  ASSERT_NE(generation_of(all, 205), nullptr);  // what calibrate writes of such a GPU
  EXPECT_EQ(generation_of(all, 205)->architecture, "orion");
}

TEST_F(Generation, MultipliesInTheTypesOfItsFile) {
  const Result<Prediction> mxfp8 = predicted("orion", "mxfp8");
  ASSERT_TRUE(mxfp8) << mxfp8.error().message;
  EXPECT_EQ(features_of(mxfp8.value(), read().value()).gpu, "orion 200");
  change(data_ / "clusters/orion.json", R"("fp8", "mxfp8", "nvfp4"])", R"("fp8"])");
  EXPECT_TRUE(predicted("orion", "fp8"));
  const Result<Prediction> refused = predicted("orion", "mxfp8");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "plan.precision: B200-SXM-180GB has no products in mxfp8: its file's "
            "gpu.product_types are fp32, fp16, bf16, fp8");
}

TEST_F(Generation, AWordThatNoFileHasIsRefusedWithTheNearest) {
  change(data_ / "clusters/orion.json", R"("architecture": "orion")", R"("architecture": "oriom")");
  const Result<Cluster> cluster = read();
  ASSERT_FALSE(cluster);
  EXPECT_NE(cluster.error().message.find(
                R"(gpu.architecture: "oriom" is not a generation of kernels/generations.json; )"
                R"(the nearest is "orion")"),
            std::string::npos)
      << cluster.error().message;
}

TEST_F(Generation, AFileWithoutTheNewKeysMeansWhatItMeant) {
  const fs::path file = data_ / "clusters/orion.json";
  change(file, R"("product_types": ["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"],)", "");
  change(file, R"("vendor": "nvidia",)", "");
  EXPECT_EQ(read().value().gpu.vendor, "nvidia");
  EXPECT_TRUE(predicted("orion", "mxfp8"));  // from capability 10.0 on
  change(file, R"("compute_capability": 200)", R"("compute_capability": 90)");
  EXPECT_FALSE(predicted("orion", "mxfp8"));
  EXPECT_TRUE(predicted("orion", "fp8"));
  // AMD's, by its links, whatever number stood as its capability.
  change(file, R"("compute_capability": 90)", R"("compute_capability": 942)");
  change(file, R"("nvlink": {)", R"("xgmi": {)");
  const Cluster amd = read().value();
  EXPECT_EQ(amd.gpu.vendor, "amd");
  EXPECT_FALSE(amd.gpu.compute_capability);
  EXPECT_FALSE(predicted("orion", "mxfp8"));
}

TEST_F(Generation, WhatContradictsItselfIsRefused) {
  const fs::path file = data_ / "clusters/orion.json";
  change(file, R"("vendor": "nvidia")", R"("vendor": "amd")");
  EXPECT_NE(read().error().message.find("gpu.compute_capability: is NVIDIA's"), std::string::npos);
  change(file, R"("vendor": "amd")", R"("vendor": "nvidia")");
  change(file, R"("nvfp4": 9000)", R"("nvfp4": null)");
  EXPECT_NE(read().error().message.find("gpu.product_types: nvfp4 has no rate"), std::string::npos);
}

// The MI300X has no block-scaled products, as an H100 has none; both have fp8.
TEST(Products, OfShippedGpusAreAsTheirFilesSay) {
  for (const char* cluster : {"mi300x-8", "dgx-h100"}) {
    EXPECT_TRUE(predicted(cluster, "fp8")) << cluster;
    for (const char* precision : {"mxfp8", "nvfp4"}) {
      const Result<Prediction> refused = predicted(cluster, precision);
      ASSERT_FALSE(refused) << cluster;
      EXPECT_TRUE(refused.error().unsupported);
      EXPECT_NE(refused.error().message.find(std::string("no products in ") + precision),
                std::string::npos);
    }
  }
  EXPECT_TRUE(predicted("dgx-a100-80gb", "fp8"));  // with 16-bit products, as `simulate` says
  EXPECT_FALSE(read_cluster({.path = "scenarios/clusters/dgx-a100-80gb.json"})
                   .value()
                   .multiplies(ComputeType::Fp8));
}

// Rows of collectives and files of kernels name generations that there are.
TEST(Generations, OfShippedTablesAreKnown) {
  const std::vector<GpuGeneration> all = shipped_generations().value();
  const CollectiveTables tables = shipped_collective_tables().value();
  for (const CollectiveSystem& system : tables.systems) {
    EXPECT_TRUE(check_generation(all, system.architecture)) << system.name;
  }
  for (const auto& [capability, word] :
       std::array<std::pair<std::int32_t, const char*>, 8>{{{70, "volta"},
                                                            {75, "turing"},
                                                            {80, "ampere"},
                                                            {86, "ampere"},
                                                            {89, "ada"},
                                                            {90, "hopper"},
                                                            {100, "blackwell"},
                                                            {120, "blackwell"}}}) {
    ASSERT_NE(generation_of(all, capability), nullptr) << capability;
    EXPECT_EQ(generation_of(all, capability)->architecture, word);
  }
  EXPECT_EQ(generation_of(all, 61), nullptr);
}

}  // namespace
}  // namespace rehearse::sim
