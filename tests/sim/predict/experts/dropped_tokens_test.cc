// SPDX-License-Identifier: Apache-2.0
// MFU where a capacity drops tokens: of what is computed.
#include <gtest/gtest.h>

#include <string>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Prediction with_capacity(const std::string& capacity) {
  const Scenario scenario =
      read_scenario("scenarios/mixtral-8x7b-64.json",
                    {.overrides = {"plan.expert_capacity=" + capacity, "plan.recompute=full"}})
          .value();
  return predict(scenario, read_cluster(scenario.cluster).value()).value();
}

// Mixtral's routed experts are linear in the share that is computed, all else is what it is: half
// of the tokens lack half of what the experts' products are, nine tenths nine of them.
TEST(DroppedTokens, AreNotCountedInFlops) {
  const Prediction whole = with_capacity("null"), most = with_capacity("1"),
                   half = with_capacity("0.5"), tenth = with_capacity("0.1");
  EXPECT_EQ(most.model_flops, whole.model_flops);
  EXPECT_EQ(most.dropped_note, "");
  const Scenario scenario = read_scenario("scenarios/mixtral-8x7b-64.json", {}).value();
  const Plan& plan = scenario.plan;
  // 2 of 8 experts with 3 matrices of 4096 x 14336 in each of 32 layers; 2 FLOPs, forward once and
  // backward twice.
  const double experts = 6.0 * static_cast<double>(plan.global_batch * plan.sequence_length) * 32 *
                         2 * 3 * 4096 * 14336;
  EXPECT_NEAR(half.model_flops / (whole.model_flops - 0.5 * experts), 1, 1e-12);
  EXPECT_NEAR(tenth.model_flops / (whole.model_flops - 0.9 * experts), 1, 1e-12);
  EXPECT_NEAR((whole.recomputed_flops - half.recomputed_flops) / (experts / 6), 1, 1e-9);
  EXPECT_NE(half.dropped_note.find("drop 50.0 % of their tokens"), std::string::npos)
      << half.dropped_note;
}

// So MFU does not grow by dropping, and is no share above 1.
TEST(DroppedTokens, DoNotRaiseTheUtilization) {
  double before = with_capacity("1").mfu().value();
  for (const char* capacity : {"0.5", "0.1", "0.000001"}) {
    const Prediction made = with_capacity(capacity);
    EXPECT_LT(made.mfu().value(), before) << capacity;
    EXPECT_LE(made.hfu().value(), 1) << capacity;
    before = made.mfu().value();
  }
}

}  // namespace
}  // namespace rehearse::sim
