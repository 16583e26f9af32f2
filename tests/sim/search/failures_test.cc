// SPDX-License-Identifier: Apache-2.0
// Runs among failures against the closed forms, in the limit where these hold.
#include "sim/search/buy/failures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/formulas/closed_form.h"

namespace rehearse::sim {
namespace {

constexpr double kDay = 86400;

// Exponential failures, nodes back at once: the mean over long runs is Daly's complete formula,
// from machines that hardly fail to such that lose half of their time. 400 runs of 1,000 and more
// mean times between failures have a standard error below 0.1 %.
TEST(Failures, MeanIsDalysCompleteFormula) {
  struct Case {
    double mtbf, save, restart, interval;
  };
  for (const Case& c :
       {Case{36000, 60, 300, 2078}, Case{3600, 60, 300, 657}, Case{3600, 300, 900, 1470},
        Case{36000, 60, 300, 600}, Case{7200, 20, 0, 3000}, Case{1800, 200, 600, 848}}) {
    const Failures failures{
        .mtbf_s = c.mtbf, .save_s = c.save, .interval_s = c.interval, .restart_s = c.restart};
    const GoodputSpread played = simulate_failures(failures, 2000 * c.mtbf, 400, 7);
    const double formula = daly_share(c.interval, c.save, c.restart, c.mtbf);
    EXPECT_NEAR(played.mean / formula, 1, 0.01) << c.mtbf << " " << c.save << " " << c.interval;
    EXPECT_LE(played.p10, played.p50);
    EXPECT_LE(played.p50, played.p90);
  }
}

// Where failures are rare, Young's first-order loss is the same too: checkpoints and restarts much
// shorter than the time between failures.
TEST(Failures, MeanIsYoungsFormulaWhereFailuresAreRare) {
  const double mtbf = 20 * kDay, save = 30, restart = 120;
  const double interval = checkpoint_interval(save, mtbf);
  const double young = 1 - goodput_loss(interval, save, restart, mtbf);
  const GoodputSpread played = simulate_failures(
      {.mtbf_s = mtbf, .save_s = save, .interval_s = interval, .restart_s = restart}, 400 * mtbf,
      200, 3);
  EXPECT_NEAR(played.mean, young, 0.01 * young);
  EXPECT_NEAR(played.mean, young, 0.001);  // 0.3 % are lost: the loss itself is met within a third
}

// The interval of Young and Daly loses no more than others do.
TEST(Failures, LoseLeastNearDalysInterval) {
  const double mtbf = 10000, save = 50;
  const auto share = [&](double interval) {
    return simulate_failures(
               {.mtbf_s = mtbf, .save_s = save, .interval_s = interval, .restart_s = 100},
               1000 * mtbf, 200, 11)
        .mean;
  };
  const double best = share(checkpoint_interval(save, mtbf));
  EXPECT_GT(best, share(checkpoint_interval(save, mtbf) / 3));
  EXPECT_GT(best, share(checkpoint_interval(save, mtbf) * 3));
}

TEST(Failures, OfARunWithoutAnyCheckpointsAlone) {
  const GoodputSpread played =
      simulate_failures({.mtbf_s = 1e15, .save_s = 25, .interval_s = 1000}, 1e6, 5, 1);
  EXPECT_NEAR(played.p10, 1000.0 / 1025, 1e-9);
  EXPECT_NEAR(played.p90, 1000.0 / 1025, 1e-9);
}

// In bursts the mean of many runs hardly changes, and single runs differ more.
TEST(Failures, InBurstsRunsDifferMore) {
  Failures failures{.mtbf_s = 20000, .save_s = 60, .interval_s = 1550, .restart_s = 600};
  const GoodputSpread even = simulate_failures(failures, 50 * failures.mtbf_s, 2000, 5);
  failures.shape = 0.5;
  const GoodputSpread bursts = simulate_failures(failures, 50 * failures.mtbf_s, 2000, 5);
  EXPECT_GT(bursts.p90 - bursts.p10, 1.3 * (even.p90 - even.p10));
}

// A failed node that is away for a day: alone the machine waits for it; two spares are enough for
// one failure in a day and a half on average, most of the time; with fewer replicas it goes on at
// 7/8.
TEST(Failures, SparesAndFewerReplicasHelp) {
  Failures failures{.mtbf_s = 1.5 * kDay,
                    .save_s = 60,
                    .interval_s = 3900,
                    .restart_s = 600,
                    .repair_s = kDay,
                    .nodes = 64,
                    .replicas = 8};
  const auto share = [&] { return simulate_failures(failures, 300 * kDay, 100, 2).mean; };
  // Without: it trains while no node is away. Nodes away are an M/D/infinity queue, empty with
  // probability e^-(1/1.5); checkpoints, lost work and restarts cost some per cent of that.
  const double alone = share();
  EXPECT_NEAR(alone, std::exp(-1 / 1.5), 0.03);
  failures.fewer_replicas = true;
  const double fewer = share();
  EXPECT_GT(fewer, 0.85);  // two thirds of the time at 7/8, and less when two are away
  EXPECT_LT(fewer, 0.95);
  failures.fewer_replicas = false;
  failures.spares = 4;
  const double spared = share();
  EXPECT_GT(spared, 0.95);
  // As if nodes were back at once: no more than that.
  failures.repair_s = 0;
  EXPECT_LE(spared, share() + 0.002);
}

TEST(Failures, AreTheSameForTheSameSeed) {
  const Failures failures{.mtbf_s = 3600, .save_s = 10, .interval_s = 268, .restart_s = 30};
  const GoodputSpread a = simulate_failures(failures, 1e6, 50, 9),
                      b = simulate_failures(failures, 1e6, 50, 9);
  EXPECT_EQ(a.p50, b.p50);
  EXPECT_NE(a.p50, simulate_failures(failures, 1e6, 50, 10).p50);
}

// What never gets anywhere ends, too.
TEST(Failures, OfAHopelessRunEnd) {
  const GoodputSpread played = simulate_failures(
      {.mtbf_s = 10, .save_s = 1000, .interval_s = 1000, .restart_s = 1000}, 1e4, 3, 1);
  EXPECT_LT(played.p90, 0.01);
}

}  // namespace
}  // namespace rehearse::sim
