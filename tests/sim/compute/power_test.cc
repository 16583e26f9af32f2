// SPDX-License-Identifier: Apache-2.0
// The clock under a power limit.
#include "sim/compute/power.h"

#include <gtest/gtest.h>

#include "tests/schedules/runtime/runtime_named.h"
#include "tests/sim/compute/compute_fixture.h"

namespace rehearse::sim {
namespace {

KernelScalars hopper() {
  return read_kernel_scalars(fixture::h100_node(), fixture::kKernels).value();
}

// One second of products at 600 TFLOP/s: 120 W + 0.84 pJ x 6e14 = 624 W at full clock.
TEST(Power, FullClockDrawsIdlePlusEnergyOverTime) {
  EXPECT_NEAR(power_w(hopper(), {.flops16 = 6e14, .tensor_ns = 1e9}, 1), 624, 1e-9);
}

// The limit is in the sustained fraction already: products at 0.66 of 989 TFLOP/s that move 0.5
// TB/s draw 120 + 548 + 30 W, which 700 W just holds.
TEST(Power, ASteadyProductJustMeetsTheLimitOfAnH100) {
  const PowerUse use{.flops16 = 0.66 * 989e12, .hbm_bytes = 0.5e12, .tensor_ns = 1e9};
  EXPECT_NEAR(power_w(hopper(), use, 1), 700, 3);
  EXPECT_EQ(sustained_clock(hopper(), use, 700), 1);
}

// With all time in products P(c) = 120 + 756 c^2: 700 W at c = sqrt(580 / 756).
TEST(Power, TheClockFallsUntilTheLimitHolds) {
  const PowerUse use{.flops16 = 9e14, .tensor_ns = 1e9};
  const double clock = sustained_clock(hopper(), use, 700);
  EXPECT_NEAR(clock, std::sqrt(580.0 / 756), 1e-9);
  EXPECT_LE(power_w(hopper(), use, clock), 700);
}

TEST(Power, ALightLoadKeepsTheFullClock) {
  EXPECT_EQ(sustained_clock(hopper(), {.flops16 = 6e14, .tensor_ns = 1e9, .other_ns = 1e9}, 700),
            1);
}

TEST(Power, AnA100DoesNotThrottle) {
  const KernelScalars ampere = read_kernel_scalars(fixture::a100_node(), fixture::kKernels).value();
  EXPECT_EQ(sustained_clock(ampere, {.flops16 = 2.5e14, .tensor_ns = 1e9}, 400), 1);
}

// The 500 W card of torchtitan runs the same layer at a lower clock than the 700 W card.
TEST(Power, ALowerLimitGivesALowerClock) {
  const Transformer model = fixture::gpt(48, 7168, 56);
  Plan plan;
  plan.runtime = runtime_named("fsdp");
  plan.micro_batch = 4;
  plan.global_batch = 4;
  plan.sequence_length = 2048;
  plan.padded_vocabulary = 51200;
  const double at_700 =
      ComputeModel::create(fixture::h100_node(700), {model, plan}, {}, hopper()).value().clock();
  const double at_500 =
      ComputeModel::create(fixture::h100_node(500), {model, plan}, {}, hopper()).value().clock();
  EXPECT_GT(at_700, 0.97);
  EXPECT_LT(at_500, at_700);
  EXPECT_GT(at_500, 0.6);
}

}  // namespace
}  // namespace rehearse::sim
