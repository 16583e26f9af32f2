// SPDX-License-Identifier: Apache-2.0
// PyTorch's numbers of a tiny DeepSeek-V3 (tests/data/golden/experts/README.md): latent attention,
// a dense layer before two with experts, and routers whose biases balance them, in many layouts.
//
// The smallest gap between a chosen and the next score is 4.1e-5, rounding errors are 1e-6: so
// every layout must choose the same experts in all steps.
#include "tests/exec/step/experts_case.h"

namespace rehearse::exec {
namespace {

TinyRun train_deepseek(std::vector<std::string> keys, const TinyOptions& how = {}) {
  keys.emplace_back("expert_capacity=16");  // 16 tokens of a rank are far from balanced
  return train_tiny("deepseek_v3", keys, how);
}

TEST(LatentExperts, TrainAsPyTorchInEveryLayout) {
  for (const std::vector<std::string>& keys : expert_layouts()) {
    SCOPED_TRACE(testing::PrintToString(keys));
    expect_golden("deepseek_v3", "plain", train_deepseek(keys));
  }
}

TEST(LatentExperts, BiasesBalanceAsInPyTorchInEveryLayout) {
  const Json& golden_bias =
      golden()["models"]["deepseek_v3"]["variants"]["bias_update"]["final_bias"];
  for (std::vector<std::string> keys : expert_layouts()) {
    SCOPED_TRACE(testing::PrintToString(keys));
    keys.emplace_back("train.router_bias_rate=0.01");
    const TinyRun run = train_deepseek(keys);
    expect_golden("deepseek_v3", "bias_update", run);
    ASSERT_FALSE(run.corrections.empty());
    for (const auto& [layer, values] : golden_bias.items()) {
      for (std::size_t e = 0; e < values.size(); ++e) {
        const std::size_t at = std::stoul(layer) * values.size() + e;
        EXPECT_NEAR(run.corrections.back().at(at), values[e].get<double>(), 1e-7);
      }
    }
  }
}

// What a file says of rotary columns changes what is trained, beyond the bounds above.
TEST(LatentExperts, RotaryKeysCount) {
  const TinyRun good = train_deepseek({"micro_batch=4"});
  for (const Json& changed : {Json{{"rope_interleave", false}}, Json{{"rope_theta", 100}}}) {
    const TinyRun run = train_deepseek({"micro_batch=4"}, {.changed = changed});
    ASSERT_EQ(run.error, "");
    EXPECT_GE(std::abs(run.norms[0] / good.norms[0] - 1), 1e-5) << changed;
  }
}

}  // namespace
}  // namespace rehearse::exec
