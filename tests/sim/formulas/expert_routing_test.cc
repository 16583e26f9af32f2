// SPDX-License-Identifier: Apache-2.0
// Distinct ranks and busiest ranks by formula, against counting and against drawn tokens.
#include "sim/formulas/expert_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace rehearse::sim {
namespace {

constexpr Routing kMixtral{.experts = 8, .per_token = 2};
constexpr Routing kDeepSeekV3{.experts = 256, .per_token = 8, .groups = 8, .kept_groups = 4};

// One part is visited by every token, and E parts (one expert each) by k different ones.
TEST(ExpertRouting, OnePartIsVisitedOnceAndEveryExpertOnItsOwn) {
  for (const Routing& r : {kMixtral, kDeepSeekV3, Routing{.experts = 128, .per_token = 8}}) {
    EXPECT_NEAR(expected_parts(r, 1), 1, 1e-12);
    EXPECT_NEAR(expected_parts(r, r.experts), r.per_token, 1e-9);
  }
}

// D(g) = g (1 - C(E - E/g, k) / C(E, k)), computed by hand: 2 of 8 on 2 ranks 2 (1 - 6/28) = 1.571.
TEST(ExpertRouting, HasTheKnownNumbersOfDistinctRanks) {
  EXPECT_NEAR(expected_parts(kMixtral, 2), 2 * (1 - 6.0 / 28), 1e-12);
  EXPECT_NEAR(expected_parts(kMixtral, 8), 2, 1e-12);
  const Routing wide{.experts = 256, .per_token = 8};
  EXPECT_NEAR(expected_parts(wide, 8), 5.29, 0.005);
  EXPECT_NEAR(expected_parts(wide, 16), 6.52, 0.005);
  EXPECT_NEAR(expected_parts(wide, 64), 7.68, 0.005);
  const Routing qwen{.experts = 128, .per_token = 8};
  EXPECT_NEAR(expected_parts(qwen, 4), 3.63, 0.005);
  EXPECT_NEAR(expected_parts(qwen, 8), 5.34, 0.005);
}

// DeepSeek-V3's limit: 4 of 8 groups of 32, which are the nodes of 64 ranks.
TEST(ExpertRouting, ALimitOfGroupsLimitsNodes) {
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 2), 1.93, 0.01);
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 4), 2.93, 0.01);
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 8), 3.63, 0.01);
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 16), 5.34, 0.01);
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 32), 6.60, 0.01);
  EXPECT_NEAR(expected_parts(kDeepSeekV3, 64), 7.36, 0.01);
  for (const std::int32_t parts : {2, 4, 8, 16, 64}) {
    EXPECT_LT(expected_parts(kDeepSeekV3, parts),
              expected_parts({.experts = 256, .per_token = 8}, parts));
  }
}

TEST(ExpertRouting, HasTheKnownMaximaOfNormalVariables) {
  const double known[] = {.564, 1.029, 1.424, 1.766, 2.070, 2.344, 2.594, 2.825};
  for (std::int32_t i = 0; i < 8; ++i) EXPECT_NEAR(expected_maximum(2 << i), known[i], 2e-3);
  EXPECT_EQ(expected_maximum(1), 0);
}

// Simulated maxima that were published beside the formula.
TEST(ExpertRouting, HasTheKnownLoadsOfTheBusiestRank) {
  EXPECT_NEAR(expected_busiest(kMixtral, 8 * 4096, 8), 1.0144, 1e-3);
  EXPECT_NEAR(expected_busiest({.experts = 128, .per_token = 8}, 8 * 4096, 8), 1.0073, 1e-3);
  EXPECT_NEAR(expected_busiest({.experts = 128, .per_token = 8}, 32 * 4096, 32), 1.0103, 1e-3);
}

// Tokens drawn one by one, with groups that the parts cut evenly (8 and 4) and unevenly (6 parts
// of 48 experts in 4 groups of 12).
void expect_as_drawn(const Routing& r, std::int32_t parts) {
  std::mt19937 random(7);
  constexpr int kTokens = 4096, kRounds = 60;
  double visited = 0, busiest = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> rows(static_cast<std::size_t>(parts), 0);
    for (int token = 0; token < kTokens; ++token) {
      std::vector<std::int32_t> groups(static_cast<std::size_t>(r.groups));
      std::iota(groups.begin(), groups.end(), 0);
      std::shuffle(groups.begin(), groups.end(), random);
      std::vector<std::int32_t> open;
      for (std::int32_t g = 0; g < r.kept_groups; ++g) {
        const std::int32_t size = r.experts / r.groups;
        for (std::int32_t i = 0; i < size; ++i) {
          open.push_back(groups[static_cast<std::size_t>(g)] * size + i);
        }
      }
      std::shuffle(open.begin(), open.end(), random);
      std::set<std::int32_t> seen;
      for (std::int32_t i = 0; i < r.per_token; ++i) {
        const std::int32_t part = open[static_cast<std::size_t>(i)] / (r.experts / parts);
        ++rows[static_cast<std::size_t>(part)];
        seen.insert(part);
      }
      visited += static_cast<double>(seen.size());
    }
    busiest += static_cast<double>(*std::ranges::max_element(rows)) * parts /
               (static_cast<double>(kTokens) * r.per_token);
  }
  EXPECT_NEAR(expected_parts(r, parts), visited / kTokens / kRounds, 0.02) << parts;
  EXPECT_NEAR(expected_busiest(r, kTokens, parts), busiest / kRounds, 0.004) << parts;
}
TEST(ExpertRouting, IsWhatDrawnTokensDo) {
  expect_as_drawn({.experts = 32, .per_token = 8, .groups = 8, .kept_groups = 4}, 8);
  expect_as_drawn({.experts = 32, .per_token = 8, .groups = 8, .kept_groups = 4}, 4);
  expect_as_drawn({.experts = 48, .per_token = 4, .groups = 4, .kept_groups = 2}, 6);
}

// Uniform routing tends to the mean as tokens grow; a balanced one is there; a factor is believed.
TEST(ExpertRouting, ABalanceIsFormulaOrInput) {
  EXPECT_EQ(busiest_over_mean({}, kMixtral, 100, 8), 1);
  EXPECT_EQ(busiest_over_mean({LoadBalance::Factor, 1.3}, kMixtral, 100, 8), 1.3);
  const ExpertLoad uniform{LoadBalance::Uniform};
  const double few = busiest_over_mean(uniform, kMixtral, 1e3, 8);
  const double many = busiest_over_mean(uniform, kMixtral, 1e5, 8);
  EXPECT_NEAR((few - 1) / (many - 1), 10, 1e-6);  // 1 / sqrt(tokens)
  EXPECT_EQ(busiest_over_mean(uniform, kMixtral, 1e3, 1), 1);
}

}  // namespace
}  // namespace rehearse::sim
