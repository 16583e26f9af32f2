// SPDX-License-Identifier: Apache-2.0
#include "sim/band/source_weights.h"

#include <algorithm>

namespace rehearse::sim {

void sort_by_value(std::vector<Weighted>& values) {
  std::ranges::sort(values, {}, &Weighted::value);
}

double weighted_quantile(std::span<const Weighted> values, double share) {
  double all = 0, sum = 0;
  for (const Weighted& one : values) all += one.weight;
  for (const Weighted& one : values) {
    sum += one.weight;
    if (sum >= share * all) return one.value;
  }
  return values.empty() ? 0 : values.back().value;
}

}  // namespace rehearse::sim
