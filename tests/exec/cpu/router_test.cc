// SPDX-License-Identifier: Apache-2.0
// The router of every dialect against its formulas in double: which experts are chosen, with what
// weights, and the gradient by differences of the loss that they define.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "exec/cpu/kernels/routing.h"
#include "tests/exec/cpu/noise.h"

namespace rehearse::exec {
namespace {

using Doubles = std::vector<double>;

struct Case {
  std::string name;
  RouteShape shape;
  bool corrected = false;
};
// 7 tokens. The dialects of the reference's table, and what else a file can say.
const Case kCases[] = {
    {"mixtral", {.tokens = 7, .experts = 8, .per_token = 2, .normalised = true}},
    {"olmoe", {.tokens = 7, .experts = 8, .per_token = 3}},
    {"losses",
     {.tokens = 7, .experts = 8, .per_token = 2, .normalised = true, .auxiliary = 0.3F, .z = 0.2F}},
    {"deepseek_v2 by groups",
     {.tokens = 7, .experts = 12, .per_token = 3, .scale = 16, .groups = 4, .kept_groups = 2}},
    {"deepseek_v3",
     {.tokens = 7,
      .experts = 16,
      .per_token = 4,
      .normalised = true,
      .sigmoid = true,
      .scale = 2.5F,
      .groups = 4,
      .kept_groups = 2,
      .group_best = 2},
     true},
    {"glm4_moe with losses",
     {.tokens = 7,
      .experts = 8,
      .per_token = 2,
      .normalised = true,
      .sigmoid = true,
      .group_best = 2,
      .auxiliary = 0.3F,
      .z = 0.2F},
     true},
    {"sigmoids as they are",
     {.tokens = 7,
      .experts = 8,
      .per_token = 2,
      .sigmoid = true,
      .scale = 0.5F,
      .auxiliary = 0.1F}},
    {"llama4", {.tokens = 7, .experts = 4, .per_token = 1, .sigmoid = true}},
};

Doubles scores_of(const RouteShape& s, const double* logits) {
  Doubles scores;
  double sum = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    scores.push_back(s.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]));
    sum += scores.back();
  }
  if (!s.sigmoid) {
    for (double& x : scores) x /= sum;
  }
  return scores;
}

// Is x among the `count` largest? Of equal ones the lower index is.
bool among_largest(const Doubles& values, std::size_t x, std::int64_t count) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    before += values[i] > values[x] || (values[i] == values[x] && i < x) ? 1 : 0;
  }
  return before < count;
}

std::vector<std::int32_t> chosen_of(const RouteShape& s, const double* logits) {
  Doubles choice = scores_of(s, logits), sums;
  for (std::size_t e = 0; e < choice.size() && s.correction != nullptr; ++e) {
    choice[e] += static_cast<double>(s.correction[e]);
  }
  const std::size_t each = at(s.experts / s.groups);
  for (std::size_t g = 0; g < at(s.groups); ++g) {
    const Doubles group(choice.begin() + static_cast<std::ptrdiff_t>(g * each),
                        choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * each));
    sums.push_back(0);
    for (std::size_t e = 0; e < each; ++e) {
      if (among_largest(group, e, s.group_best)) sums.back() += group[e];
    }
  }
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (!among_largest(sums, e / each, s.kept_groups)) {
      choice[e] = -std::numeric_limits<double>::infinity();
    }
  }
  std::vector<std::int32_t> chosen;
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (among_largest(choice, e, s.per_token)) chosen.push_back(static_cast<std::int32_t>(e));
  }
  return chosen;
}

Doubles weights_of(const RouteShape& s, const double* logits, const std::int32_t* chosen) {
  const Doubles scores = scores_of(s, logits);
  Doubles weights;
  double sum = 1e-20;
  for (std::int64_t k = 0; k < s.per_token; ++k) sum += scores[at(chosen[k])];
  for (std::int64_t k = 0; k < s.per_token; ++k) {
    weights.push_back(static_cast<double>(s.scale) * scores[at(chosen[k])] /
                      (s.normalised ? sum : 1));
  }
  return weights;
}

// sum of d_weights weights + auxiliary sum over experts of their count and their P + z / 2 (log of
// sums)^2, of one token that chose `chosen`: counts and choice have no gradient.
double loss_of(const RouteShape& s, const double* logits, const std::int32_t* chosen,
               const float* d_weights, const Floats& counts) {
  const Doubles weights = weights_of(s, logits, chosen), scores = scores_of(s, logits);
  double loss = 0, all = 0, exponentials = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    loss += static_cast<double>(d_weights[k]) * weights[k];
  }
  for (const double x : scores) all += x;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    loss += static_cast<double>(s.auxiliary) * static_cast<double>(counts[e]) * scores[e] / all;
    exponentials += std::exp(logits[e]);
  }
  return loss + static_cast<double>(s.z) / 2 * std::pow(std::log(exponentials), 2);
}

struct Routed {
  std::vector<std::int32_t> chosen;
  Floats weights, scores, logsum;
};
Routed routed(const RouteShape& s, const Floats& logits) {
  Routed out{std::vector<std::int32_t>(at(s.tokens * s.per_token)),
             Floats(at(s.tokens * s.per_token)), Floats(at(s.tokens * s.experts)),
             Floats(at(s.tokens))};
  route(s, logits.data(), out.chosen.data(), out.weights.data(), out.scores.data(),
        out.logsum.data());
  return out;
}

TEST(Router, ChoosesWeighsAndLearnsAsEveryDialectSays) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    RouteShape s = one.shape;
    const Floats logits = noise(s.tokens * s.experts, 5), correction = noise(s.experts, 6);
    if (one.corrected) s.correction = correction.data();
    const Routed got = routed(s, logits);
    const Floats dw = noise(s.tokens * s.per_token, 7);
    // What other ranks and slices counted stands there before.
    Floats d_logits(logits.size()), counts = noise(s.experts, 8);
    for (float& count : counts) count = std::round(10 * count);
    Floats more = counts;
    count_chosen(s.tokens * s.per_token, s.experts, got.chosen.data(), counts.data());
    for (const std::int32_t e : got.chosen) ++more[at(e)];
    EXPECT_EQ(counts, more);
    route_backward(s, dw.data(), got.chosen.data(), got.weights.data(), got.scores.data(),
                   got.logsum.data(), counts.data(), d_logits.data());
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      Doubles x(logits.begin() + t * s.experts, logits.begin() + (t + 1) * s.experts);
      const std::int32_t* mine = got.chosen.data() + t * s.per_token;
      ASSERT_EQ(std::vector(mine, mine + s.per_token), chosen_of(s, x.data())) << "token " << t;
      const Doubles weights = weights_of(s, x.data(), mine);
      for (std::int64_t k = 0; k < s.per_token; ++k) {
        EXPECT_NEAR(got.weights[at(t * s.per_token + k)], weights[at(k)], 1e-7 * s.scale);
      }
      for (std::size_t e = 0; e < x.size(); ++e) {
        const double h = 1e-5, before = x[e];
        const auto loss = [&](double logit) {
          x[e] = logit;
          return loss_of(s, x.data(), mine, dw.data() + t * s.per_token, counts);
        };
        const double slope = (loss(before + h) - loss(before - h)) / (2 * h);
        x[e] = before;
        EXPECT_NEAR(d_logits[at(t * s.experts) + e], slope, 1e-6 * std::max(1.0F, s.scale))
            << "token " << t << ", expert " << e;
      }
    }
  }
}

// The correction of deepseek_v3: expert 0 has the least score and is chosen for its correction, but
// its weight is the score's share: sigmoid(-2) / (sigmoid(-2) + sigmoid(3)).
TEST(Router, ACorrectionChoosesAndDoesNotWeigh) {
  const Floats logits{-2, 1, 3, 2}, correction{5, 0, 0, 0};
  const Routed got = routed({.tokens = 1,
                             .experts = 4,
                             .per_token = 2,
                             .normalised = true,
                             .sigmoid = true,
                             .correction = correction.data()},
                            logits);
  EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{0, 2}));
  const double low = 1 / (1 + std::exp(2.0)), high = 1 / (1 + std::exp(-3.0));
  EXPECT_NEAR(got.weights[0], low / (low + high), 1e-7);
}

// Experts 0 and 1 are the best of the group (0, 1), but groups (2, 3) and (4, 5) have larger sums
// of two; those are equal, so the lower group is kept.
TEST(Router, OfEqualGroupsAndExpertsTheLowerIsChosen) {
  const Floats logits{9, -9, 1, 1, 1, 1};
  const Floats none(6, 0.0F);
  RouteShape s{.tokens = 1,
               .experts = 6,
               .per_token = 1,
               .sigmoid = true,
               .groups = 3,
               .kept_groups = 1,
               .group_best = 2,
               .correction = none.data()};
  EXPECT_EQ(routed(s, logits).chosen, (std::vector<std::int32_t>{2}));
  s.group_best = 1;
  EXPECT_EQ(routed(s, logits).chosen, (std::vector<std::int32_t>{0}));
}

// Both sigmoids are 1 in fp32: the logits still tell them apart, and a slope is left.
TEST(Router, LargeLogitsKeepTheirOrderAndSlope) {
  const RouteShape s{.tokens = 1, .experts = 2, .per_token = 1, .sigmoid = true};
  const Floats logits{20, 21}, dw{1};
  const Routed got = routed(s, logits);
  EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{1}));
  Floats d(2);
  route_backward(s, dw.data(), got.chosen.data(), got.weights.data(), got.scores.data(),
                 got.logsum.data(), nullptr, d.data());
  EXPECT_NEAR(d[1] / std::exp(-21.0), 1, 1e-6);
  EXPECT_EQ(d[0], 0);
}

// Logits that are not numbers choose k different experts all the same: the step ends by its loss.
TEST(Router, WhatIsNotANumberIsChosenLast) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const Floats zeros(4, 0.0F);
  for (const float* correction : {static_cast<const float*>(nullptr), zeros.data()}) {
    const RouteShape s{.tokens = 2, .experts = 4, .per_token = 2, .correction = correction};
    const Routed got = routed(s, {none, none, none, none, 0, 0, 0, 0});
    EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{0, 1, 0, 1}));
  }
  std::vector<std::int32_t> chosen(40, 1), kept(40);
  Floats weights = noise(40, 8);
  for (std::size_t i = 0; i < weights.size(); i += 3) weights[i] = none;
  drop_copies({.tokens = 40, .experts = 2, .per_token = 1, .capacity = 7}, chosen.data(),
              weights.data(), kept.data());
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1), 7);
}

// Of five copies expert 0 takes two: the largest weight, and of the two next the earlier token's.
TEST(Router, AnExpertKeepsItsLargestWeightsOfEqualOnesTheEarlier) {
  const std::vector<std::int32_t> chosen{0, 1, 0, 1, 0, 1, 0, 2, 0, 1};
  const Floats weights{.2F, .1F, .5F, .1F, .9F, .1F, .5F, .1F, .4F, .1F};
  std::vector<std::int32_t> kept(10);
  drop_copies({.tokens = 5, .experts = 3, .per_token = 2, .capacity = 2}, chosen.data(),
              weights.data(), kept.data());
  EXPECT_EQ(kept, (std::vector<std::int32_t>{-1, 1, 0, 1, 0, -1, -1, 2, -1, -1}));
}

}  // namespace
}  // namespace rehearse::exec
