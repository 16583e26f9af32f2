// SPDX-License-Identifier: Apache-2.0
// Training in bf16 and fp16 through the CUDA backend's host code: what has two bytes an element is
// where it is looked for, rounds where the CPU's does, and is ordered; a step that overflows is
// left out. The double's kernels are the CPU's.
#include <algorithm>
#include <cmath>

#include "tests/cuda_double/processes.h"
#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

Keys in_bf16(Keys keys) {
  keys.emplace_back("precision=bf16");
  return keys;
}
Keys in_fp16(Keys keys) {
  keys.emplace_back("precision=fp16");
  return keys;
}

class OnDoubleIn16Bits : public testing::TestWithParam<Cell> {};

// A GELU in a product's epilogue reads the sum before it is rounded, the CPU's behind it: there
// losses and weights are within the roundings that layouts differ by (sixteen_bits_test.cc).
TEST_P(OnDoubleIn16Bits, TrainsAsTheCpu) {
  const Cell& cell = GetParam();
  Prepared p = prepare(cell.family, in_bf16(cell.plan));
  p.scenario.train.steps = 2;
  const Trained there = train_prepared(p, cuda_options(p));
  const Trained here = train_layout(cell.family, in_bf16(cell.plan), 1, 2);
  ASSERT_EQ(there.error, "");
  ASSERT_EQ(here.error, "");
  EXPECT_EQ(cuda_double::unordered(), "");
  const Distance far = distance(there, here);
  const bool gelu = cell.family == Family::Gpt2 || cell.family == Family::Gpt2Untied;
  EXPECT_TRUE(far.bitwise || gelu) << far.loss << ' ' << far.weight;
  EXPECT_LE(far.loss, 2e-4);
  EXPECT_LE(far.norm, 2e-3);
  EXPECT_LE(far.weight, 3e-2) << far.tensor;
}
INSTANTIATE_TEST_SUITE_P(Layouts, OnDoubleIn16Bits, testing::ValuesIn(layouts_in_16_bits()),
                         [](const auto& cell) { return std::string(cell.param.name); });

TEST(NcclDouble, TrainsInBf16WithTheBitsOfOneProcess) {
  for (const Keys& keys :
       {Keys{"tensor_parallel=2", "sequence_parallel=true", "overlap.tensor_parallel=true"},
        Keys{"data_parallel=2", "zero_stage=3"}}) {
    Prepared p = prepare(Family::Llama, in_bf16(keys));
    p.scenario.train.steps = 2;
    const std::vector<Outcome> there = train_with_nccl(p, {});
    const Trained here = train_layout(Family::Llama, in_bf16(keys), 1, 2);
    for (const Outcome& process : there) {
      ASSERT_EQ(process.error, "") << keys[0];
      EXPECT_EQ(process.losses, here.losses) << keys[0];
    }
    EXPECT_EQ(cuda_double::unordered(), "");
  }
}

// A loss scale of 2^28: gradients overflow, step after step is left out at half the scale of the
// one before, and the rest trains. The graphs of a step hold the scale that it had.
constexpr double kTooLarge = 0x1p28;
constexpr std::int64_t kSteps = 12;

std::int64_t skipped_of(const std::vector<double>& norms) {
  return std::ranges::count_if(norms, [](double norm) { return std::isinf(norm); });
}

TEST(Fp16OnTheDouble, SkipsTheStepsThatTheCpuSkipsAndTrainsAsItDoes) {
  for (const Keys& keys :
       {Keys{},
        {"data_parallel=2", "zero_stage=1"},
        {"pipeline_parallel=2", "schedule=1f1b", "tensor_parallel=2", "sequence_parallel=true"},
        {"data_parallel=2", "zero_stage=3"},
        {"context_parallel=2"}}) {
    SCOPED_TRACE(keys.empty() ? "one rank" : keys[0]);
    Prepared p = prepare(Family::Llama, in_fp16(keys));
    p.scenario.train.steps = kSteps;
    const cuda_double::GraphCounts before = cuda_double::graphs();
    const Trained there = train_prepared(p, cuda_options(p), nullptr, kTooLarge);
    const Trained here = train_layout(Family::Llama, in_fp16(keys), 1, kSteps, kTooLarge);
    ASSERT_EQ(there.error + here.error, "");
    EXPECT_EQ(cuda_double::unordered(), "");
    const std::int64_t skipped = skipped_of(there.norms);
    EXPECT_GE(skipped, 3);
    EXPECT_LT(skipped, kSteps - 2);
    EXPECT_TRUE(std::ranges::all_of(there.losses, [](double loss) { return std::isfinite(loss); }));
    EXPECT_EQ(there.losses, here.losses);
    EXPECT_EQ(there.norms, here.norms);
    EXPECT_EQ(there.weights, here.weights);
    // Captured in the second step and wherever the scale has changed since; then launched.
    const std::int64_t made = cuda_double::graphs().captured - before.captured;
    const std::int64_t ran = cuda_double::graphs().launched - before.launched;
    EXPECT_EQ(made * (kSteps - 1), ran * skipped);
  }
}

TEST(NcclDouble, SkipsStepsInFp16InEveryProcess) {
  for (const Keys& keys : {Keys{"tensor_parallel=2", "sequence_parallel=true"},
                           Keys{"data_parallel=2", "zero_stage=3"}}) {
    SCOPED_TRACE(keys[0]);
    Prepared p = prepare(Family::Llama, in_fp16(keys));
    p.scenario.train.steps = kSteps;
    const std::vector<Outcome> there = train_with_nccl(p, {.begin_scale = kTooLarge});
    const Trained here = train_layout(Family::Llama, in_fp16(keys), 1, kSteps, kTooLarge);
    for (const Outcome& process : there) {
      ASSERT_EQ(process.error, "");
      EXPECT_EQ(process.losses, here.losses);
      EXPECT_EQ(process.norms, here.norms);
    }
    EXPECT_GE(skipped_of(here.norms), 3);
    EXPECT_EQ(cuda_double::unordered(), "");
  }
}

}  // namespace
}  // namespace rehearse::exec
