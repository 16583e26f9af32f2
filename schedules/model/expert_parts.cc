// SPDX-License-Identifier: Apache-2.0
// Sums over how many of a part's experts are in the groups that a token kept.
#include "schedules/model/expert_parts.h"

#include <algorithm>

namespace rehearse {
namespace {

using Eligible = std::vector<double>;

// C(n - hit, k) / C(n, k): none of k different ones of n is among `hit` of them.
double chance_of_none(std::int32_t n, std::int32_t hit, std::int32_t k) {
  double chance = 1;
  for (std::int32_t i = 0; i < k; ++i) {
    chance *= static_cast<double>(std::max(0, n - hit - i)) / (n - i);
  }
  return chance;
}

}  // namespace

Routing routing_of(const Experts& experts) {
  return {.experts = static_cast<std::int32_t>(experts.count),
          .per_token = static_cast<std::int32_t>(experts.per_token),
          .groups = static_cast<std::int32_t>(experts.groups),
          .kept_groups = static_cast<std::int32_t>(experts.kept_groups)};
}

// Groups are taken one by one: kept with the chance that is
// left for the rest (drawing without replacement).
std::vector<double> eligible_experts(const Routing& r, std::int32_t part, std::int32_t parts) {
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

std::int32_t different_parts(const Routing& r, std::int32_t parts) {
  return parts % r.groups == 0 || r.groups % parts == 0 ? 1 : parts;
}

double expected_parts(const Routing& r, std::int32_t parts) {
  const std::int32_t different = different_parts(r, parts), kept = r.kept_experts();
  double visited = 0;
  for (std::int32_t part = 0; part < different; ++part) {
    const Eligible eligible = eligible_experts(r, part, parts);
    for (std::size_t n = 0; n < eligible.size(); ++n) {
      if (eligible[n] == 0) continue;  // most, where groups are not limited
      const auto hit = static_cast<std::int32_t>(n);
      visited += eligible[n] * (1 - chance_of_none(kept, hit, r.per_token));
    }
  }
  return visited * parts / different;
}

}  // namespace rehearse
