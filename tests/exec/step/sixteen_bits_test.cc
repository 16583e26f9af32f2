// SPDX-License-Identifier: Apache-2.0
// Training in 16 bits: near fp32, not equal to it, alike in every layout, in memory as planned.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

std::vector<std::string> in_precision(std::vector<std::string> plan, const std::string& name) {
  plan.push_back("precision=" + name);
  return plan;
}

class SixteenBits : public testing::TestWithParam<Cell> {};

TEST_P(SixteenBits, TrainLikeOneRankInEveryLayout) {
  const Cell& cell = GetParam();
  static std::map<Family, Trained> known;
  const auto [at, fresh] = known.try_emplace(cell.family);
  if (fresh) at->second = train_layout(cell.family, {"precision=bf16"});
  const Trained& one = at->second;
  ASSERT_EQ(one.error, "");
  const Trained many = train_layout(cell.family, in_precision(cell.plan, "bf16"));
  ASSERT_EQ(many.error, "");
  const Distance far = distance(many, one);
  if (std::getenv("REHEARSE_DISTANCES") != nullptr) {
    std::printf("%-26s loss %.1e norm %.1e weight %.1e %s%s\n", cell.name, far.loss, far.norm,
                far.weight, far.tensor.c_str(), far.bitwise ? " bitwise" : "");
  }
  EXPECT_TRUE(far.bitwise || cell.equal != Bitwise) << far.loss << ' ' << far.weight;
  // 8 bits of mantissa: a rounding is 2^-9 of a number, and where a sum is cut there is another
  // one. Biases begin at zero: after four steps one is a sum of gradients that mostly cancel, which
  // their roundings do not.
  EXPECT_LE(far.loss, 2e-4);
  EXPECT_LE(far.norm, 2e-3);
  EXPECT_LE(far.weight, 3e-2) << far.tensor;
  EXPECT_EQ(many.planned, many.counted);
}

TEST(LayoutsIn16Bits, AreLayoutsOfTheMatrix) {
  EXPECT_EQ(layouts_in_16_bits().size(), std::size(kIn16Bits));
}
INSTANTIATE_TEST_SUITE_P(Layouts, SixteenBits, testing::ValuesIn(layouts_in_16_bits()),
                         [](const auto& cell) { return std::string(cell.param.name); });

// GPT-2 of 124 million parameters, 8 samples of 1,024 tokens: activations outweigh the states, of
// which 16 bits have 2 bytes more per parameter.
TEST(SixteenBitsOfMemory, AreLessThanFp32sWhereActivationsOutweighStates) {
  const auto peak = [](const std::string& precision) {
    const Result<Scenario> read = layout_scenario(
        R"({"model_type": "gpt2", "resid_pdrop": 0, "n_layer": 12, "n_embd": 768, "n_head": 12,
            "vocab_size": 50257, "n_positions": 1024})",
        {"sequence_length=1024", "micro_batch=8", "precision=" + precision});
    EXPECT_TRUE(read) << read.error().message;
    Plan plan = read.value().plan;
    const Result<Schedule> schedule = lower_for_run(read.value().model, plan);
    EXPECT_TRUE(schedule);
    return static_cast<double>(schedule.value().live_peak_bytes.front().value);
  };
  const double wide = peak("fp32");
  EXPECT_LT(peak("bf16"), 0.8 * wide);
  EXPECT_EQ(peak("fp16"), peak("bf16"));  // gradients of parameters are fp32 in both
}

TEST(SixteenBitsOver20Steps, LoseWithin2PercentOfFp32AndNotTheSame) {
  for (const Family family : {Gpt2, Llama}) {
    const Trained wide = train_layout(family, {}, 1, 20);
    const Trained narrow = train_layout(family, {"precision=bf16"}, 1, 20);
    ASSERT_EQ(wide.error + narrow.error, "");
    ASSERT_EQ(narrow.losses.size(), 20U);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(narrow.losses[i] / wide.losses[i], 1, 0.02) << i;
      EXPECT_NE(narrow.losses[i], wide.losses[i]) << i;
    }
    EXPECT_LT(narrow.losses.back(), narrow.losses.front());
  }
}

// fp16 with a loss scale of 2^28: gradients of the logits overflow, every rank leaves the update
// out, and training goes on at half the scale.
TEST(Fp16, SkipsStepsThatOverflowOnAllRanksAndGoesOn) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{},
        {"data_parallel=2", "zero_stage=1"},
        {"pipeline_parallel=2", "schedule=1f1b", "tensor_parallel=2", "sequence_parallel=true"},
        {"data_parallel=2", "zero_stage=3"}}) {
    const Trained run = train_layout(Gpt2, in_precision(plan, "fp16"), 1, 20, 0x1p28);
    ASSERT_EQ(run.error, "");
    std::size_t skipped = 0;
    while (skipped < 20 && !std::isfinite(run.norms[skipped])) ++skipped;
    EXPECT_GE(skipped, 3U);
    EXPECT_LE(skipped, 12U);
    for (std::size_t i = skipped; i < 20; ++i) EXPECT_TRUE(std::isfinite(run.norms[i])) << i;
    EXPECT_LT(run.losses.back(), run.losses[skipped]);
    // The first update is the first step's: losses from there on are those of a run on later
    // samples, so compare what a skipped step leaves: the weights.
    const Trained before = train_layout(Gpt2, in_precision(plan, "fp16"), 1,
                                        static_cast<std::int64_t>(skipped), 0x1p28);
    ASSERT_EQ(before.error, "");
    const Trained shorter = train_layout(Gpt2, in_precision(plan, "fp16"), 1, 1, 0x1p28);
    EXPECT_EQ(before.weights, shorter.weights);
    EXPECT_NE(run.weights, before.weights);
  }
}

TEST(Fp16, LosesWithin2PercentOfFp32AndNotTheSame) {
  const Trained wide = train_layout(Gpt2, {}, 1, 20);
  const Trained narrow = train_layout(Gpt2, {"precision=fp16"}, 1, 20);
  ASSERT_EQ(wide.error + narrow.error, "");
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(narrow.losses[i] / wide.losses[i], 1, 0.02) << i;
    EXPECT_NE(narrow.losses[i], wide.losses[i]) << i;
  }
}

// torch's rule, start 1024, grown after 3 clean steps, overflows in steps 2, 3, 4 and 9.
TEST(LossScale, MovesAsTorchsGradScaler) {
  const LossScaleRule rule{.start = 1024, .interval = 3};
  Plan plan;
  plan.precision.compute = ComputeType::Fp16;
  LossScale scale = begin_loss_scale(plan, {}, {}, rule);
  std::vector<double> used;
  for (int step = 0; step < 12; ++step) {
    used.push_back(scale.scale);
    update_loss_scale({}, (step >= 2 && step <= 4) || step == 9, scale, rule);
  }
  EXPECT_EQ(used,
            (std::vector<double>{1024, 1024, 1024, 512, 256, 128, 128, 128, 256, 256, 128, 128}));
  EXPECT_EQ(scale.skipped, 4);
  const LossScale fixed = begin_loss_scale(plan, {.loss_scale = 512}, scale, rule);
  EXPECT_EQ(fixed.scale, 512);
  EXPECT_EQ(fixed.skipped, 4);
  plan.precision.compute = ComputeType::Bf16;
  EXPECT_EQ(begin_loss_scale(plan, {}, scale, rule).scale, 0);
}

}  // namespace
}  // namespace rehearse::exec
