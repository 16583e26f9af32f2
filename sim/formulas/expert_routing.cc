// SPDX-License-Identifier: Apache-2.0
#include "sim/formulas/expert_routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace rehearse::sim {

double expected_busiest(const Routing& r, double tokens, std::int32_t parts) {
  if (parts <= 1 || tokens <= 0) return 1;
  const std::int32_t different = different_parts(r, parts), kept = r.kept_experts();
  // Rows that one token brings to one part: mean k / parts, second moment from the hypergeometric
  // one given the eligible experts.
  double mean = 0, square = 0;
  for (std::int32_t part = 0; part < different; ++part) {
    const std::vector<double> eligible = eligible_experts(r, part, parts);
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

namespace {

double computed_maximum(std::int32_t count) {
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

}  // namespace

double expected_maximum(std::int32_t count) {
  if (count <= 1) return 0;
  // A search asks for a few counts again and again; 0: not asked yet.
  thread_local std::array<double, 1025> known{};
  if (count >= static_cast<std::int32_t>(known.size())) return computed_maximum(count);
  double& maximum = known[static_cast<std::size_t>(count)];
  if (maximum == 0) maximum = computed_maximum(count);
  return maximum;
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
