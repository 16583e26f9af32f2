// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/max_min.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/sim/engine/random_schedule.h"

namespace rehearse::sim {
namespace {

// Two flows that each fill the link alone get half of it each.
TEST(MaxMin, TwoFullFlowsShareALinkEqually) {
  const std::vector<Demand> demand{{{0}, 1.0}};
  SharedResources shared(1, 2);
  shared.add(0, demand, 1);
  shared.settle();
  EXPECT_EQ(shared.rate(0), 1);
  shared.add(1, demand, 1);
  EXPECT_EQ(shared.settle().size(), 2u);
  EXPECT_EQ(shared.rate(0), 0.5);
  EXPECT_EQ(shared.rate(1), 0.5);
  shared.remove(0);
  EXPECT_EQ(shared.settle().size(), 1u);
  EXPECT_EQ(shared.rate(1), 1);
}

// The classic line of two links: the long flow and each short one share; rates 1/2, 1/2, 1/2. With
// a third flow on the second link only that link divides by 3, and the first gives 2/3 to its own.
TEST(MaxMin, WhatOneLinkDeniesAnotherGivesAway) {
  const std::vector<Demand> both{{{0}, 1.0}, {{1}, 1.0}}, first{{{0}, 1.0}}, second{{{1}, 1.0}};
  SharedResources shared(2, 4);
  shared.add(0, both, 1);
  shared.add(1, first, 1);
  shared.add(2, second, 1);
  shared.settle();
  EXPECT_EQ(shared.rate(0), 0.5);
  EXPECT_EQ(shared.rate(1), 0.5);
  EXPECT_EQ(shared.rate(2), 0.5);
  shared.add(3, second, 1);
  shared.settle();
  EXPECT_DOUBLE_EQ(shared.rate(0), 1.0 / 3);
  EXPECT_DOUBLE_EQ(shared.rate(1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(shared.rate(3), 1.0 / 3);
  // The long flow is held back by the second link, the short one on the first by the first.
  EXPECT_EQ(shared.limit(0), ResourceId{1});
  EXPECT_EQ(shared.limit(1), ResourceId{0});
  EXPECT_EQ(shared.limit(3), ResourceId{1});
}

// Three thirds fill a link exactly: nobody is slowed, not even by rounding.
TEST(MaxMin, AnExactlyFullLinkSlowsNobody) {
  const std::vector<Demand> third{{{0}, 1.0 / 3}};
  SharedResources shared(1, 3);
  for (std::int32_t slot = 0; slot < 3; ++slot) shared.add(slot, third, 1);
  shared.settle();
  for (std::int32_t slot = 0; slot < 3; ++slot) EXPECT_EQ(shared.rate(slot), 1);
}

struct Present {
  std::vector<Demand> demands;
  double bound = 1;
};

// What characterises max-min fairness: no resource is overfull, and each flow is at its bound or
// has a bottleneck, a full resource on which no other flow is faster.
void expect_max_min(const SharedResources& shared, const std::map<std::int32_t, Present>& flows,
                    std::int32_t num_resources) {
  constexpr double kRounding = 1e-8;
  std::vector<double> load(static_cast<std::size_t>(num_resources)), fastest(load.size());
  for (const auto& [slot, flow] : flows) {
    for (const Demand& demand : flow.demands) {
      load[demand.resource.index()] += demand.share * shared.rate(slot);
      double& most = fastest[demand.resource.index()];
      most = std::max(most, shared.rate(slot));
    }
  }
  for (std::size_t k = 0; k < load.size(); ++k) {
    ASSERT_LE(load[k], 1 + kRounding);
    ASSERT_NEAR(load[k], shared.load({static_cast<std::int32_t>(k)}), kRounding);
  }
  for (const auto& [slot, flow] : flows) {
    ASSERT_GT(shared.rate(slot), 0);
    ASSERT_LE(shared.rate(slot), flow.bound);
    bool limited = shared.rate(slot) == flow.bound;
    for (const Demand& demand : flow.demands) {
      limited |= load[demand.resource.index()] >= 1 - kRounding &&
                 shared.rate(slot) >= fastest[demand.resource.index()] - kRounding;
    }
    ASSERT_TRUE(limited) << "slot " << slot << " could be faster";
  }
}

// 300 systems of up to 24 flows on up to 10 resources, each changed 40 times: incremental solutions
// satisfy the same conditions as fresh ones.
TEST(MaxMin, EveryFlowHasABottleneckAfterEveryChange) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Dice dice(seed);
    constexpr std::int32_t kSlots = 24;
    const std::int32_t num_resources = 1 + dice.below(10);
    SharedResources shared(num_resources, kSlots);
    std::map<std::int32_t, Present> flows;
    for (std::int32_t change = 0; change < 40; ++change) {
      for (std::int32_t k = 1 + dice.below(3); k-- > 0;) {
        const std::int32_t slot = dice.below(kSlots);
        const auto found = flows.find(slot);
        if (found == flows.end()) {
          Present& flow = flows[slot];
          flow.bound = dice.one_in(2) ? 1 : 0.1 * (1 + dice.below(9));
          for (std::int32_t r = 0; r < num_resources; ++r) {
            if (dice.one_in(3)) flow.demands.push_back({{r}, 0.05 * (1 + dice.below(20))});
          }
          shared.add(slot, flow.demands, flow.bound);
        } else if (dice.one_in(2)) {
          shared.remove(slot);
          flows.erase(found);
        } else {
          found->second.bound = 0.1 * (1 + dice.below(9));
          shared.set_bound(slot, found->second.bound);
        }
      }
      shared.settle();
      expect_max_min(shared, flows, num_resources);
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", change " << change;
    }
  }
}

// Flows on a link that could not be full with all of them at their bounds do not see one another.
TEST(MaxMin, AChangeElsewhereChangesNothing) {
  const std::vector<Demand> a{{{0}, 0.7}, {{2}, 0.1}}, b{{{1}, 0.7}, {{2}, 0.1}};
  SharedResources shared(3, 4);
  shared.add(0, a, 1);
  shared.add(1, a, 1);
  shared.add(2, b, 1);
  shared.settle();
  shared.add(3, b, 1);
  const std::span<const std::int32_t> changed = shared.settle();
  EXPECT_EQ(std::vector(changed.begin(), changed.end()), (std::vector<std::int32_t>{2, 3}));
}

}  // namespace
}  // namespace rehearse::sim
