// SPDX-License-Identifier: Apache-2.0
// The band around a predicted step: what it is read off, and what makes it wider.
#include "sim/band/band.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/band/difference_band.h"

namespace rehearse::sim {
namespace {

StepFeatures step() {
  StepFeatures f{.gpu = "hopper 90",
                 .precision = "16 bit",
                 .runtime = "megatron",
                 .attention = "flash3",
                 .nic = "ib",
                 .gpus = 64,
                 .network_share = 0.2,
                 .memory_fill = 0.8};
  f.set(StepKind::Tensor);
  return f;
}

// 100 steps like step() with errors -0.10, -0.098 ... 0.098 of one source, `more` errors of another
// with 100 steps in 8 bit.
ErrorTable table(double shift = 0) {
  ErrorTable made{.sources = {"a", "b"},
                  .rule = {.difference = 0.2,
                           .network_scale = 0.1,
                           .memory_scale = 0.3,
                           .lower = 0.05,
                           .upper = 0.95,
                           .few = 2},
                  .unseen = 0.15,
                  .left_out = {{.keys = {"runtime"}, .move = 0.1}},
                  .pair_equal = 0.02,
                  .pair_ordered = 0.05};
  for (int i = 0; i < 100; ++i) {
    made.rows.push_back({0, step(), shift + 0.002 * (i - 50)});
    StepFeatures other = step();
    other.precision = "fp8";
    made.rows.push_back({1, other, 0.5});
  }
  return made;
}

BandQuery query() {
  return {.features = step(), .given = {"runtime"}, .without_source = {}};
}

// Source b counts a fifth of source a: 1/6 of all weight lies at 0.5, so the 95th percentile does
// too, and the 5th is a's: 0.05 / (5/6) = the 6 % smallest of its hundred.
TEST(Band, IsTheQuantilesOfTheErrorsByHowAlikeTheStepsAre) {
  const Band band = band_of(query(), table());
  EXPECT_NEAR(std::log(band.low), 0.002 * (5 - 50), 0.0021);
  EXPECT_NEAR(std::log(band.high), 0.5, 1e-9);
  ASSERT_EQ(band.nearest.size(), 2u);
  EXPECT_EQ(band.nearest[0].source, "a");
  EXPECT_EQ(band.nearest[0].cases, 100);
  EXPECT_NEAR(band.nearest[0].share, 5.0 / 6, 1e-9);
  EXPECT_TRUE(band.nearest[0].differs.empty());
  EXPECT_EQ(band.nearest[1].differs, std::vector<std::string>{"precision"});
  EXPECT_TRUE(band.unseen.empty());
}

// Every error is above 0.1: the steps were slower than predicted, and the band says nothing of
// faster ones. The prediction itself always lies in it.
TEST(Band, IsOneSidedWhereErrorsHaveASign) {
  const Band band = band_of(query(), table(0.2));
  EXPECT_EQ(band.low, 1);
  EXPECT_GT(band.high, 1.2);
}

TEST(Band, IsWiderForWhatNobodyMeasured) {
  const Band known = band_of(query(), table());
  BandQuery other = query();
  other.features.gpu = "blackwell 100";
  const Band wider = band_of(other, table());
  EXPECT_EQ(wider.unseen, std::vector<std::string>{"blackwell 100 in 16 bit"});
  EXPECT_LT(wider.low, known.low);
  other = query();
  other.features.runtime.clear();  // stands for any framework
  EXPECT_EQ(band_of(other, table()).unseen, std::vector<std::string>{"this framework"});
  other = query();
  other.features.precision = "fp8";
  EXPECT_TRUE(band_of(other, table()).unseen.empty());
  other.features.runtime = "fsdp";
  EXPECT_EQ(band_of(other, table()).unseen, std::vector<std::string>{"runtime fsdp"});
}

// A network that nobody measured counts by its share of the step.
TEST(Band, CountsANetworkByItsShare) {
  for (const double share : {0.0, 0.2, 1.0}) {
    BandQuery known = query();
    known.features.network_share = share;
    BandQuery other = known;
    other.features.nic = "omni path";
    EXPECT_NEAR(std::log(band_of(other, table()).low),
                -std::hypot(std::log(band_of(known, table()).low), 0.15 * share), 1e-9);
  }
}

// low = -hypot(quantile, 0.1).
TEST(Band, IsWiderForWhatThePlanLeavesOut) {
  BandQuery silent = query();
  silent.given.clear();
  const Band band = band_of(silent, table()), said = band_of(query(), table());
  EXPECT_EQ(band.defaulted, std::vector<std::string>{"runtime"});
  EXPECT_TRUE(said.defaulted.empty());
  EXPECT_NEAR(std::log(band.low), -std::hypot(std::log(said.low), 0.1), 1e-9);
}

// Half of the step rests on rates that nobody measured: 0.15 * 0.5 in quadrature.
TEST(Band, IsWiderForRatesWithoutASource) {
  BandQuery assumed = query();
  assumed.assumed_share = 0.5;
  EXPECT_NEAR(std::log(band_of(assumed, table()).low),
              -std::hypot(std::log(band_of(query(), table()).low), 0.075), 1e-9);
}

TEST(Band, ASourceIsNoWitnessOfItself) {
  BandQuery without = query();
  without.without_source = "b";
  const Band band = band_of(without, table());
  EXPECT_LT(band.high, std::exp(0.11));
  ASSERT_EQ(band.nearest.size(), 1u);
}

// Neither framework has a profile: that both have none does not make them alike.
TEST(Band, TwoFrameworksWithoutAProfileAreTwo) {
  StepFeatures any = step();
  any.runtime.clear();
  EXPECT_EQ(differences(any, any), std::vector<std::string_view>{"runtime"});
  EXPECT_TRUE(differences(step(), step()).empty());
}

TEST(Band, DifferencesAreAsManyAsAreNamed) {
  StepFeatures other = step();
  const auto check = [&](std::int32_t number) {
    EXPECT_EQ(num_differences(step(), other), number);
    EXPECT_EQ(differences(step(), other).size(), static_cast<std::size_t>(number));
  };
  check(0);
  other.gpu += "a";
  other.precision += "a";
  check(2);
  other.runtime.clear();
  other.attention += "a";
  other.kinds ^= 0b10101;
  check(7);
}

// Each kind of step that no row has widens its band once, and no longer when one row has it.
TEST(Band, WhatNobodyMeasuredWidensItUntilSomebodyHas) {
  struct Case {
    StepKind kind;
    bool slow_alone;
  };
  for (const auto& [kind, slow_alone] :
       {Case{StepKind::HostBound, false}, Case{StepKind::LearnedRouting, true},
        Case{StepKind::AssumedNetwork, true}, Case{StepKind::BlockedHost, false},
        Case{StepKind::Experts, false}, Case{StepKind::WideShards, false}}) {
    ErrorTable known = table();
    BandQuery of = query();
    of.features.set(kind);
    for (MeasuredError& row : known.rows) row.features.set(kind);
    const Band seen = band_of(of, known);
    EXPECT_TRUE(seen.unseen.empty());
    ErrorTable other = known;  // as alike to the query in every other way
    for (MeasuredError& row : other.rows) {
      row.features.set(kind);
      if (kind == StepKind::Experts) row.features.gpu = "blackwell 100";
      if (kind == StepKind::WideShards) row.features.runtime = "another";
      if (kind != StepKind::Experts && kind != StepKind::WideShards) {
        row.features.kinds ^= 1U << static_cast<unsigned>(kind);
      }
    }
    const Band widened = band_of(of, other);
    const auto name = std::string(kStepKindNames[static_cast<std::size_t>(kind)]);
    ASSERT_FALSE(widened.unseen.empty()) << name;
    EXPECT_GT(widened.high, seen.high) << name;
    if (slow_alone) {
      EXPECT_NEAR(std::log(widened.low), std::log(seen.low), 0.0021) << name;  // one row of a
    } else {
      EXPECT_LT(std::log(widened.low), std::log(seen.low) - 0.0021) << name;
    }
  }
}

// An error that both plans share does not tell them apart; one of the difference does not cancel.
TEST(DifferenceBand, IsOfWhatTwoErrorsDiffer) {
  ErrorTable made = table();
  made.rows.clear();
  for (std::int32_t group = 1; group <= 20; ++group) {
    const double shared = 0.3 * (group % 2);  // another machine, another day
    for (std::int32_t plan = 1; plan <= 3; ++plan) {
      MeasuredError row{0, step(), shared + 0.01 * plan};
      row.group = group;
      row.plan = plan;
      made.rows.push_back(row);
    }
  }
  EXPECT_NEAR(difference_band(step(), step(), made), 0.02, 1e-9);
  EXPECT_EQ(difference_band(step(), step(), made, "a"), 0);  // its own witness
  for (MeasuredError& row : made.rows) row.group = 0;        // plans that did not compete
  EXPECT_EQ(difference_band(step(), step(), made), 0);
}

// Pairs whose two plans differ as the two that are asked of count more.
TEST(DifferenceBand, LooksAtPairsThatDifferAlike) {
  ErrorTable made = table();
  made.rows.clear();
  StepFeatures piped = step();
  piped.set(StepKind::Pipeline);
  for (std::int32_t group = 1; group <= 10; ++group) {
    const StepFeatures& other = group % 2 == 0 ? piped : step();
    for (std::int32_t plan = 1; plan <= 2; ++plan) {
      MeasuredError row{0, plan == 1 ? step() : other, group % 2 == 0 ? 0.2 * plan : 0.01 * plan};
      row.group = group;
      row.plan = plan;
      made.rows.push_back(row);
    }
  }
  made.rule.difference = 0.05;
  EXPECT_NEAR(difference_band(step(), piped, made), 0.2, 1e-9);
  EXPECT_NEAR(difference_band(step(), step(), made), 0.01, 1e-9);
}

TEST(Band, KindsAreReadAsTheyAreWritten) {
  StepFeatures f = step();
  f.set(StepKind::ShardedParameters);
  EXPECT_EQ(kinds_text(f.kinds), "tp zero3");
  EXPECT_EQ(kinds_of("tp zero3"), f.kinds);
  EXPECT_EQ(kinds_of(""), 0u);
}

}  // namespace
}  // namespace rehearse::sim
