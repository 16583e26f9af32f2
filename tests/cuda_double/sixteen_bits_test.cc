// SPDX-License-Identifier: Apache-2.0
// Training in bf16 through the CUDA backend's host code: what has two bytes an element is where it
// is looked for, rounds where the CPU's does, and is ordered. The double's kernels are the CPU's.
#include "tests/cuda_double/processes.h"
#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

Keys in_bf16(Keys keys) {
  keys.emplace_back("precision=bf16");
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

}  // namespace
}  // namespace rehearse::exec
