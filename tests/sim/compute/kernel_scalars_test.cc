// SPDX-License-Identifier: Apache-2.0
// Scalars of a GPU type: defaults, the architecture's file over them, the type's members over that,
// a calibration over all; broken files are named with line and key.
#include "sim/compute/kernel_scalars.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "schedules/base/json_reader.h"
#include "tests/sim/compute/compute_fixture.h"

namespace rehearse::sim {
namespace {

using fixture::a100_node;
using fixture::kKernels;

TEST(KernelScalars, AnArchitectureOverridesTheDefaults) {
  const KernelScalars ampere = read_kernel_scalars(a100_node(), kKernels).value();
  EXPECT_EQ(ampere.gemm_sustained, 0.80);  // ampere.json
  EXPECT_EQ(ampere.gemm_prologue, 64);     // default.json
  EXPECT_EQ(ampere.level, CostLevel::Formula);
  EXPECT_EQ(ampere.gemm_points.size(), 359U);
}

TEST(KernelScalars, AGpuTypeOverridesItsArchitecture) {
  Cluster pcie = a100_node();
  pcie.gpu.name = "A100-PCIe-80GB";
  const KernelScalars scalars = read_kernel_scalars(pcie, kKernels).value();
  EXPECT_EQ(scalars.gemm_sustained, 0.76);
  EXPECT_EQ(scalars.gemm_points.size(), 183U);
}

// One card with a lower limit keeps what its own rows say; the 700 W types share theirs.
TEST(KernelScalars, TheCardOf500WattsHasItsOwnEnergyPerFlop) {
  Cluster card = fixture::h100_node(500);
  EXPECT_EQ(read_kernel_scalars(card, kKernels).value().pj_per_flop, 0.84);
  card.gpu.name = "H100 96GB HBM2e, 500 W limit";
  EXPECT_EQ(read_kernel_scalars(card, kKernels).value().pj_per_flop, 1.3);
}

// A B200 that is capped: (750 - 120 - 30) W over 0.571 of 2250 TFLOP/s at 0.64 of the clock, twice.
TEST(KernelScalars, TheB200Of750WattsHasItsOwnEnergyPerFlop) {
  Cluster card = fixture::h100_node(750);
  card.gpu.architecture = "blackwell";
  card.gpu.name = "B200-SXM-180GB";
  EXPECT_EQ(read_kernel_scalars(card, kKernels).value().pj_per_flop, 0.66);
  card.gpu.name = "B200-SXM-180GB, 750 W limit";
  const KernelScalars capped = read_kernel_scalars(card, kKernels).value();
  EXPECT_NEAR(capped.pj_per_flop, 600 / (0.571 * 2250 * 0.64 * 0.64), 0.02);
  EXPECT_EQ(capped.gemm_sustained, 0.571);
}

// Torch's own attention is another kernel than those of AMD's libraries, and none beside NVIDIA's.
TEST(KernelScalars, TorchsAttentionHasRatesOfItsOwnWhereItIsAnotherKernel) {
  Cluster amd = a100_node();
  amd.gpu.architecture = "cdna3";
  const KernelScalars scalars = read_kernel_scalars(amd, kKernels).value();
  EXPECT_EQ(scalars.torch_forward, 0.28);
  EXPECT_EQ(scalars.torch_backward, 0.09);
  EXPECT_EQ(read_kernel_scalars(a100_node(), kKernels).value().torch_forward, 0);
}

// ampere.json has a source for element-wise kernels and none for dropout; default.json has none for
// the optimizer's.
TEST(KernelScalars, ARateWithoutASourceIsAssumed) {
  const KernelScalars ampere = read_kernel_scalars(a100_node(), kKernels).value();
  const auto level = [&](MemoryClass of) {
    return ampere.level_of(ampere.memory_assumed[static_cast<std::size_t>(of)]);
  };
  EXPECT_EQ(level(MemoryClass::Elementwise), CostLevel::Formula);
  EXPECT_EQ(level(MemoryClass::Dropout), CostLevel::Datasheet);
  EXPECT_EQ(level(MemoryClass::Optimizer), CostLevel::Datasheet);
  EXPECT_FALSE(ampere.attention_assumed[static_cast<std::size_t>(AttentionKernel::Flash2)]);
  EXPECT_TRUE(ampere.batched_assumed);
}

// Every scalar of every file is named by exactly one entry of the file's `sources`, which has a
// source, or null where there is none, and what the value was chosen on (docs/scalars.md).
TEST(KernelScalars, EveryScalarSaysWhereItIsFrom) {
  for (const char* name :
       {"default.json", "ampere.json", "hopper.json", "blackwell.json", "ada.json", "cdna3.json"}) {
    const JsonValue file = read_json((std::filesystem::path(kKernels) / name).string()).value();
    std::vector<std::string> scalars, named;
    for (const JsonMember& section : file.members) {
      if (!section.value.is(JsonKind::Object)) continue;
      for (const JsonMember& scalar : section.value.members) {
        scalars.push_back(section.key + "." + scalar.key);
      }
    }
    for (const JsonValue& entry : file.given("sources")->items) {
      EXPECT_NE(entry.find("source"), nullptr) << name;
      EXPECT_NE(entry.given("chosen_on"), nullptr) << name;
      for (const JsonValue& key : entry.given("of")->items) named.push_back(key.text);
    }
    std::ranges::sort(scalars);
    std::ranges::sort(named);
    EXPECT_EQ(named, scalars) << name;
  }
}

TEST(KernelScalars, AnUnknownArchitectureHasDefaultsAndItsOwnTypicalFraction) {
  Cluster unknown = a100_node();
  unknown.gpu.architecture = "cdna9";
  unknown.gpu.calibration.gemm_typical_fraction = 0.44;
  const KernelScalars scalars = read_kernel_scalars(unknown, kKernels).value();
  EXPECT_EQ(scalars.level, CostLevel::Datasheet);
  EXPECT_EQ(scalars.gemm_sustained, 0.44);
}

TEST(KernelScalars, ACalibrationOverridesByName) {
  Cluster calibrated = a100_node();
  calibrated.calibration = Calibration{};
  calibrated.calibration->scalars = {{"matrix_products.sustained_fraction", 0.7},
                                     {"memory.norm", 0.5}};
  calibrated.calibration->gemm = {{.m = 128, .n = 256, .k = 512, .fraction_of_peak = 0.25}};
  calibrated.calibration->launch_us = 1.5;
  const KernelScalars scalars = read_kernel_scalars(calibrated, kKernels).value();
  EXPECT_EQ(scalars.gemm_sustained, 0.7);
  EXPECT_EQ(scalars.memory[static_cast<std::size_t>(MemoryClass::Norm)], 0.5);
  ASSERT_EQ(scalars.gemm_points.size(), 1U);
  EXPECT_EQ(scalars.gemm_points[0].fraction, 0.25);
  EXPECT_EQ(scalars.executor_issue_us, 1.5);
}

// Error of a directory whose ampere.json is `text`, without the directory's name.
std::string error_of(const std::string& text) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(::testing::TempDir()) / "kernels_test";
  fs::create_directories(directory);
  fs::copy_file(fs::path(kKernels) / "default.json", directory / "default.json",
                fs::copy_options::overwrite_existing);
  std::ofstream(directory / "ampere.json") << text;
  const Result<KernelScalars> read = read_kernel_scalars(a100_node(), directory.string());
  std::string message = read ? "" : read.error().message;
  const std::string prefix = directory.string() + "/";
  if (message.starts_with(prefix)) message = message.substr(prefix.size());
  fs::remove_all(directory);
  return message;
}

TEST(KernelScalars, BrokenFilesAreNamedWithLineAndKey) {
  EXPECT_EQ(error_of("{\n\"power\": {\"idle\": 3}}"), "ampere.json:2: power.idle: unknown key");
  EXPECT_EQ(error_of("{\"memory\": {\n\"norm\": 2}}"),
            "ampere.json:2: memory.norm: must be a number from 0.001 to 1");
  EXPECT_EQ(error_of("{\"attention\": {\"flash2\":\n{\"forward\": 0.3}}}"),
            "ampere.json:1: attention.flash2: needs forward and backward");
  EXPECT_EQ(error_of("{\"matrix_products\": {\"tiles\":\n[[1, 2]]}}"),
            "ampere.json:2: matrix_products.tiles: needs [rows, columns, rate]");
  EXPECT_NE(error_of("{"), "");
}

}  // namespace
}  // namespace rehearse::sim
