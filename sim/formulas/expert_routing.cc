// SPDX-License-Identifier: Apache-2.0
// Sums over how many of a part's experts are in the groups that a token kept.
#include "sim/formulas/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rehearse::sim {
namespace {

// C(n - hit, k) / C(n, k): none of k different ones of n is among `hit` of them.
double chance_of_none(std::int32_t n, std::int32_t hit, std::int32_t k) {
  double chance = 1;
  for (std::int32_t i = 0; i < k; ++i) {
    chance *= static_cast<double>(std::max(0, n - hit - i)) / (n - i);
  }
  return chance;
}

// Chance that so many of a part's experts, by index, are in the kept groups.
using Eligible = std::vector<double>;

// `part` of `parts` blocks of experts. Groups are taken one by one: kept with the chance that is
// left for the rest (drawing without replacement).
Eligible eligible_experts(const Routing& r, std::int32_t part, std::int32_t parts) {
  const std::int32_t in_group = r.experts / r.groups, in_part = r.experts / parts;
  const std::int32_t begin = part * in_part, end = begin + in_part;
  // chance[kept][eligible]
  const auto kept_sizes = static_cast<std::size_t>(r.kept_groups) + 1;
  std::vector<Eligible> chance(kept_sizes, Eligible(static_cast<std::size_t>(in_part) + 1, 0));
  chance[0][0] = 1;
  for (std::int32_t g = 0; g < r.groups; ++g) {
    const std::int32_t shared =
        std::max(0, std::min(end, (g + 1) * in_group) - std::max(begin, g * in_group));
    std::vector<Eligible> next(kept_sizes, Eligible(static_cast<std::size_t>(in_part) + 1, 0));
    for (std::size_t kept = 0; kept < kept_sizes; ++kept) {
      const double keeps =
          static_cast<double>(r.kept_groups - static_cast<std::int32_t>(kept)) / (r.groups - g);
      for (std::size_t n = 0; n < chance[kept].size(); ++n) {
        const double here = chance[kept][n];
        if (here <= 0) continue;
        if (keeps < 1) next[kept][n] += here * (1 - keeps);
        if (keeps > 0) next[kept + 1][n + static_cast<std::size_t>(shared)] += here * keeps;
      }
    }
    chance = std::move(next);
  }
  return chance.back();
}

// Blocks that cut the groups evenly are all alike: the first stands for them.
std::int32_t different_parts(const Routing& r, std::int32_t parts) {
  return parts % r.groups == 0 || r.groups % parts == 0 ? 1 : parts;
}

std::int32_t kept_experts(const Routing& r) {
  return r.experts / r.groups * r.kept_groups;
}

}  // namespace

double expected_parts(const Routing& r, std::int32_t parts) {
  const std::int32_t different = different_parts(r, parts), kept = kept_experts(r);
  double visited = 0;
  for (std::int32_t part = 0; part < different; ++part) {
    const Eligible eligible = eligible_experts(r, part, parts);
    for (std::size_t n = 0; n < eligible.size(); ++n) {
      const auto hit = static_cast<std::int32_t>(n);
      visited += eligible[n] * (1 - chance_of_none(kept, hit, r.per_token));
    }
  }
  return visited * parts / different;
}

double expected_busiest(const Routing& r, double tokens, std::int32_t parts) {
  if (parts <= 1 || tokens <= 0) return 1;
  const std::int32_t different = different_parts(r, parts), kept = kept_experts(r);
  // Rows that one token brings to one part: mean k / parts, second moment from the hypergeometric
  // one given the eligible experts.
  double mean = 0, square = 0;
  for (std::int32_t part = 0; part < different; ++part) {
    const Eligible eligible = eligible_experts(r, part, parts);
    for (std::size_t n = 0; n < eligible.size(); ++n) {
      const double share = static_cast<double>(n) / kept;
      const double rows = r.per_token * share;
      const double spread =
          kept > 1 ? rows * (1 - share) * (kept - r.per_token) / (kept - 1.0) : 0.0;
      mean += eligible[n] * rows / different;
      square += eligible[n] * (spread + rows * rows) / different;
    }
  }
  const double deviation = std::sqrt(std::max(0.0, tokens * (square - mean * mean)));
  return 1 + expected_maximum(parts) * deviation / std::sqrt(1 - 1.0 / parts) / (tokens * mean);
}

double expected_maximum(std::int32_t count) {
  if (count <= 1) return 0;
  // E[max] = integral of x d(Phi^count), by the midpoint rule.
  constexpr double kReach = 9, kStep = 0.05;
  const auto below = [count](double x) {
    return std::pow(0.5 * std::erfc(-x / std::sqrt(2.0)), count);
  };
  double sum = 0, last = below(-kReach);
  const int steps = static_cast<int>(std::lround(2 * kReach / kStep));
  for (int i = 0; i < steps; ++i) {
    const double x = -kReach + i * kStep;
    const double next = below(x + kStep);
    sum += (x + kStep / 2) * (next - last);
    last = next;
  }
  return sum;
}

double busiest_over_mean(const ExpertLoad& load, const Routing& routing, double tokens,
                         std::int32_t parts) {
  switch (load.balance) {
    case LoadBalance::Balanced:
      return 1;
    case LoadBalance::Uniform:
      return expected_busiest(routing, tokens, parts);
    case LoadBalance::Factor:
      return std::max(1.0, load.factor);
  }
  return 1;
}

}  // namespace rehearse::sim
