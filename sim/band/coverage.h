// SPDX-License-Identifier: Apache-2.0
// Is a band as wide as the truth asks for? Every source's steps held against the band that all
// other sources give them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/band/error_table.h"

namespace rehearse::sim {

struct SourceCoverage {
  std::string source;
  std::int32_t cases = 0, below = 0, above = 0;  // outside: faster than low, slower than high
  double half_width = 0;                         // median, relative
  bool profiled = true;                          // its software has a profile of its own
  // Mean of ln(high / low), plus 20 times how far outside a step lies: the score that a band of
  // nine in ten is smallest in (Winkler; Gneiting and Raftery 2007, eq. 43, alpha 0.1).
  double score = 0;
  double covered() const { return 1 - static_cast<double>(below + above) / cases; }
};

// In the table's order. The steps' plans count as saying every key.
std::vector<SourceCoverage> coverage(const ErrorTable& table);

// Over the sources of at least `fewest` steps.
struct MeanCoverage {
  std::int32_t sources = 0;
  double covered = 0, least = 1;  // mean, smallest
  double half_width = 0;          // median of those whose software has a profile
  double score = 0;               // mean
};
MeanCoverage mean_coverage(const std::vector<SourceCoverage>& sources, std::int32_t fewest);
inline constexpr std::int32_t kFewestSteps = 8;

// The table without one of the features that make steps alike: a name of differences(), or
// "network_share", "memory_fill".
ErrorTable without_feature(ErrorTable table, const std::string& feature);

}  // namespace rehearse::sim
