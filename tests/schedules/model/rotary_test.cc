// SPDX-License-Identifier: Apache-2.0
// Rotary angles of every kind, held against their formulas. That whole models with them train as
// transformers does shows tests/cli/config_golden_test.cc.
#include "schedules/model/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse {
namespace {

constexpr std::int64_t kHead = 8, kPositions = 64;

Rotary of(const RotaryConfig& config, std::int64_t length = kPositions) {
  return rotary_of(config, kHead, kPositions, length);
}

TEST(Rotary, PlainFrequenciesFallByTheBase) {
  const Rotary plain = of({.theta = 10000});
  ASSERT_EQ(plain.inverse_frequency.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(plain.inverse_frequency[i], std::pow(10.0, -static_cast<double>(i)));
  }
  EXPECT_EQ(plain.rotary_dim, 8);
  EXPECT_EQ(plain.attention_factor, 1);
}

// An odd share is rounded up to a pair; the exponents keep the odd width.
TEST(Rotary, AShareOfAHeadIsItsFirstPairs) {
  const Rotary half = of({.share = 0.5});
  EXPECT_EQ(half.rotary_dim, 4);
  EXPECT_DOUBLE_EQ(half.inverse_frequency[1], 0.01);
  EXPECT_EQ(of({.share = 0.4}).rotary_dim, 4);  // 3 of 8
  EXPECT_DOUBLE_EQ(of({.share = 0.4}).inverse_frequency[1], std::pow(10000, -2.0 / 3));
}

TEST(Rotary, LinearDividesEveryFrequency) {
  const Rotary linear = of({.kind = RotaryKind::Linear, .factor = 4});
  EXPECT_DOUBLE_EQ(linear.inverse_frequency[0], 0.25);
  EXPECT_DOUBLE_EQ(linear.inverse_frequency[3], 0.25e-3);
}

// Within the model's positions it is plain; at twice them the base is (2f - (f - 1))^(d/(d-2))
// larger.
TEST(Rotary, DynamicGrowsItsBaseWithTheSequence) {
  const RotaryConfig config{.kind = RotaryKind::Dynamic, .factor = 3};
  EXPECT_DOUBLE_EQ(of(config, 32).inverse_frequency[1], 0.1);
  const double base = 10000 * std::pow(4.0, 8.0 / 6);
  EXPECT_DOUBLE_EQ(of(config, 2 * kPositions).inverse_frequency[1], std::pow(base, -0.25));
}

// 16 original positions: pairs that turn more than four times in them keep their frequency, those
// that turn less than once are divided by 8: the last three, which turn 16 / (2 pi 10^i) times.
TEST(Rotary, Llama3DividesLongWaves) {
  const Rotary llama = of({.kind = RotaryKind::Llama3, .factor = 8, .original_positions = 16});
  const double turns = 16 / (2 * M_PI), kept = (turns - 1) / 3;
  EXPECT_NEAR(llama.inverse_frequency[0], kept + (1 - kept) / 8, 1e-15);
  EXPECT_DOUBLE_EQ(llama.inverse_frequency[1], 0.1 / 8);
  EXPECT_DOUBLE_EQ(llama.inverse_frequency[3], 0.001 / 8);
}

// The ramp of 16 positions is from floor of the pair that turns 32 times, before the first, to the
// ceiling of the one that turns once, 8 ln(16 / 2 pi) / (2 ln 10000) = 0.4: pair 1. Where the file
// gives no factor it is the ratio of positions, 4; attention is 0.1 ln 4 + 1.
TEST(Rotary, YarnKeepsFastPairsAndScalesAttention) {
  const Rotary yarn = of({.kind = RotaryKind::Yarn, .original_positions = 16});
  EXPECT_DOUBLE_EQ(yarn.inverse_frequency[0], 1);
  EXPECT_DOUBLE_EQ(yarn.inverse_frequency[1], 0.1 / 4);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1);
  const Rotary given = of({.kind = RotaryKind::Yarn, .factor = 2, .attention_factor = 0.5});
  EXPECT_EQ(given.attention_factor, 0.5);
}

TEST(Rotary, LongRopeTakesTheListOfItsLength) {
  const RotaryConfig config{.kind = RotaryKind::LongRope,
                            .original_positions = 16,
                            .short_factors = {1, 2, 3, 4},
                            .long_factors = {5, 6, 7, 8}};
  EXPECT_DOUBLE_EQ(of(config, 16).inverse_frequency[1], 0.1 / 2);
  EXPECT_DOUBLE_EQ(of(config, 17).inverse_frequency[1], 0.1 / 6);
  // sqrt(1 + ln(64 / 16) / ln 16)
  EXPECT_DOUBLE_EQ(of(config, 16).attention_factor, std::sqrt(1.5));
}

}  // namespace
}  // namespace rehearse
