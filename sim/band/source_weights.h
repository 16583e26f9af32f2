// SPDX-License-Identifier: Apache-2.0
// Quantiles of what several sources saw, where a source counts by its most alike case, however many
// it has: its cases share the machine and the software.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rehearse::sim {

// What a source's cases weigh.
struct SourceWeight {
  double sum = 0, squares = 0, largest = 0;

  void add(double weight) {
    sum += weight;
    squares += weight * weight;
    largest = weight > largest ? weight : largest;
  }
  // Its most alike case's weight; less where few cases stand behind it: `few` equal ones give half.
  double weight(double few) const {
    if (sum <= 0) return 0;
    const double effective = sum * sum / squares;
    return largest * effective / (effective + few);
  }
};

struct Weighted {
  double value = 0, weight = 0;
};

void sort_by_value(std::vector<Weighted>& values);
// The smallest value at which the weights up to it reach `share` of all; 0 where there are none.
// REQUIRES: values ascending.
double weighted_quantile(std::span<const Weighted> values, double share);

}  // namespace rehearse::sim
