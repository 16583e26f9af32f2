// SPDX-License-Identifier: Apache-2.0
// What failures and checkpoints leave of a run.
#include "sim/predict/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse::sim {
namespace {

Transformer model_70b() {  // 69.5e9 parameters of plain layers
  Transformer model;
  model.layers = 80;
  model.hidden = 8192;
  model.heads = model.kv_heads = 64;
  model.head_dim = 128;
  model.ffn_hidden = 4 * 8192;
  model.vocabulary = 32000;
  model.max_positions = 4096;
  return model;
}

// 1,000 failures per million GPU hours on 1,000 GPUs are one per hour. A checkpoint of 12 bytes per
// parameter at that many bytes in 18 s: interval sqrt(2 * 18 * 3600) = 360 s, lost 18/360 +
// (180 + 18)/3600.
TEST(Goodput, FollowsYoungAndDaly) {
  const Transformer model = model_70b();
  Plan plan;
  plan.data_parallel = 1000;
  Cluster cluster;
  cluster.failures_per_million_gpu_hours = 1000;
  cluster.checkpoint_bandwidth =
      BytesPerSecond{static_cast<double>(total_parameters(model)) * 12 / 18};
  const std::optional<Goodput> goodput = goodput_of(cluster, model, plan);
  ASSERT_TRUE(goodput);
  EXPECT_NEAR(goodput->mtbf_s, 3600, 1e-6);
  EXPECT_NEAR(goodput->save_s, 18, 1e-9);
  EXPECT_NEAR(goodput->interval_s, 360, 1e-6);
  EXPECT_NEAR(goodput->share, 1 - 0.05 - 198.0 / 3600, 1e-9);
}

TEST(Goodput, IsUnknownWithoutRates) {
  EXPECT_FALSE(goodput_of(Cluster{}, model_70b(), Plan{}));
}

// No other interval loses less (the restart does not depend on it).
TEST(Goodput, LosesLeastAtItsInterval) {
  const auto loss = [](double interval) { return 18 / interval + interval / 2 / 3600; };
  const double best = std::sqrt(2.0 * 18 * 3600);
  for (const double factor : {0.5, 0.9, 1.1, 2.0}) EXPECT_GT(loss(best * factor), loss(best));
}

// 1e12 tokens at 1e6/s are 1e6 s; at goodput 0.8 1.25e6 s; 100 GPUs at 3.6 USD per hour: 0.1 USD/s.
TEST(Goodput, TurnsABudgetIntoTimeAndMoney) {
  const TimeToTrain time = time_to_train(1e12, 1e6, 100, Goodput{.share = 0.8}, 3.6);
  EXPECT_NEAR(time.seconds, 1.25e6, 1e-3);
  ASSERT_TRUE(time.usd);
  EXPECT_NEAR(*time.usd, 1.25e5, 1e-3);
  EXPECT_FALSE(time_to_train(1e12, 1e6, 100, std::nullopt, std::nullopt).usd);
}

}  // namespace
}  // namespace rehearse::sim
