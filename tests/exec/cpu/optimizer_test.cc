// SPDX-License-Identifier: Apache-2.0
// AdamW and Lion against their formulas in fp64, clipping, and the learning rate's course.
#include "exec/cpu/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace rehearse::exec {
namespace {

// Loshchilov & Hutter, algorithm 2, in the words of torch.optim.AdamW and in double.
struct Exact {
  double p, m = 0, v = 0;
  void step(double g, const TrainOptions& o, double rate, double decay, int t) {
    p -= rate * decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double corrected = std::sqrt(v) / std::sqrt(1 - std::pow(o.beta2, t));
    p -= rate / (1 - std::pow(o.beta1, t)) * m / (corrected + o.epsilon);
  }
};

TEST(AdamW, FollowsItsFormulaInDouble) {
  const TrainOptions options;
  std::vector<float> p{0.5F, -0.25F, 0.0F, 2.0F}, m(4, 0.0F), v(4, 0.0F);
  std::vector<Exact> exact;
  for (const float value : p) exact.push_back({static_cast<double>(value)});
  for (int t = 1; t <= 20; ++t) {
    std::vector<float> g(4);
    for (std::size_t i = 0; i < 4; ++i) {
      g[i] = 0.01F * std::sin(static_cast<float>(t) + static_cast<float>(i));
    }
    const float scale = 0.5F;  // of clipping
    adamw(p, g, m, v, options, 3e-3, 0.01, t - 1, scale);
    for (std::size_t i = 0; i < 4; ++i) {
      exact[i].step(0.5 * static_cast<double>(g[i]), options, 3e-3, 0.01, t);
      // fp32 carries 6e-8; twenty updates of 3e-3 each lose a few of them.
      EXPECT_NEAR(static_cast<double>(p[i]), exact[i].p, 1e-6) << "step " << t << ", element " << i;
    }
  }
}

// Whatever the gradient, the first step is one learning rate long: m / sqrt(v) = sign(g).
TEST(AdamW, FirstStepHasTheLengthOfTheLearningRate) {
  const TrainOptions options;
  std::vector<float> p{1.0F, 1.0F}, m(2, 0.0F), v(2, 0.0F);
  const std::vector<float> g{0.5F, -20.0F};
  adamw(p, g, m, v, options, 0.1, 0.0, 0, 1.0F);
  EXPECT_NEAR(p[0], 0.9, 1e-6);
  EXPECT_NEAR(p[1], 1.1, 1e-6);
}

// Chen et al., arXiv 2302.06675, algorithm 2, in double.
struct ExactLion {
  double p, m = 0;
  void step(double g, double beta1, double beta2, double rate, double decay) {
    const double c = beta1 * m + (1 - beta1) * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    p -= rate * (sign + decay * p);
    m = beta2 * m + (1 - beta2) * g;
  }
};

TEST(Lion, FollowsItsFormulaInDouble) {
  const TrainOptions options{.beta1 = 0.9, .beta2 = 0.99};
  std::vector<float> p{0.5F, -0.25F, 0.0F, 2.0F}, m(4, 0.0F);
  std::vector<ExactLion> exact;
  for (const float value : p) exact.push_back({static_cast<double>(value)});
  std::int32_t turns = 0;
  for (int t = 1; t <= 60; ++t) {
    std::vector<float> g(4);
    for (std::size_t i = 0; i < 4; ++i) {
      g[i] = 0.01F * std::sin(0.3F * static_cast<float>(t) + static_cast<float>(i));
    }
    const std::vector<float> before = p;
    const float scale = 0.5F;  // of clipping
    update(UpdateRule::Lion, p, g, m, {}, options, 3e-3, 0.01, t - 1, scale);
    for (std::size_t i = 0; i < 4; ++i) {
      exact[i].step(0.5 * static_cast<double>(g[i]), options.beta1, options.beta2, 3e-3, 0.01);
      // fp32 carries 6e-8; sixty updates of 3e-3 each lose a few of them.
      EXPECT_NEAR(static_cast<double>(p[i]), exact[i].p, 2e-6) << "step " << t << ", element " << i;
      EXPECT_NEAR(static_cast<double>(m[i]), exact[i].m, 1e-9);
      turns += (p[i] > before[i]) ? 1 : 0;
    }
  }
  EXPECT_GT(turns, 40);  // the signs change: the mixing of moment and gradient is seen
  EXPECT_LT(turns, 200);
}

// The direction is the mixture's, not the moment's; a gradient of nothing moves nothing; what is no
// number is seen.
TEST(Lion, MovesByTheSignOfTheMixture) {
  const TrainOptions options{.beta1 = 0.9, .beta2 = 0.99};
  std::vector<float> p{1, 1, 1, 1}, m{-0.01F, 0.01F, 0.0F, 0.0F};
  const std::vector<float> g{1.0F, 0.05F, 0.0F, std::nanf("")};
  lion(p, g, m, options, 0.1, 0.0, 1.0F);
  EXPECT_FLOAT_EQ(p[0], 0.9F);  // 0.9 x -0.01 + 0.1 x 1 > 0, against the moment
  EXPECT_FLOAT_EQ(p[1], 0.9F);
  EXPECT_EQ(p[2], 1.0F);
  EXPECT_TRUE(std::isnan(p[3]));
}

TEST(Clip, ScalesLongGradientsOnly) {
  EXPECT_FLOAT_EQ(clip_factor(0.5, 1.0), 1.0F);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_LT(clip_factor(4.0, 1.0), 0.25F);  // torch divides by norm + 1e-6
  EXPECT_FLOAT_EQ(clip_factor(1e9, 0.0), 1.0F);
}

TEST(Norm, IsSummedInDouble) {
  std::vector<float> values(10000000, 1e-4F);  // fp32 would stop growing at 2^24 times the addend
  EXPECT_NEAR(sum_of_squares(values), 1e7 * static_cast<double>(1e-4F) * static_cast<double>(1e-4F),
              1e-9);
}

TEST(LearningRate, WarmsUpAndDecays) {
  TrainOptions options{
      .steps = 20, .learning_rate = 1.0, .warmup_steps = 4, .min_learning_rate = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 19), 1.0);  // constant
  options.lr_decay = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(options, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 12), 0.6);  // half way from 1 to 0.2
  EXPECT_DOUBLE_EQ(learning_rate(options, 20), 0.2);
  options.lr_decay = "cosine";
  EXPECT_DOUBLE_EQ(learning_rate(options, 4), 1.0);
  EXPECT_NEAR(learning_rate(options, 12), 0.6, 1e-12);
  EXPECT_NEAR(learning_rate(options, 8), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(options, 100), 0.2);  // past the end: stays
}

}  // namespace
}  // namespace rehearse::exec
