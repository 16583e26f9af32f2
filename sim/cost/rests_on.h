// SPDX-License-Identifier: Apache-2.0
// What a time rests on: how good its estimates are, and which measured tables they were read from.
#pragma once

#include <array>
#include <cstdint>

#include "sim/cost/cost.h"

namespace rehearse::sim {

// The measured tables of a GPU type (or of a cluster's own calibration). Products: by the type of
// their operands, each a share of the dense peak of that type.
enum class MeasuredTable : std::uint8_t {
  None,  // a formula
  Products,
  Fp8Products,
  BlockFp8Products,  // a scale per block of values, as in MXFP8
  Nvfp4Products,
  Collectives,
};
inline constexpr std::size_t kNumMeasuredTables = 6;

// Times or shares of one time: the levels sum to all of it, the tables to what was read from them.
struct RestsOn {
  std::array<double, kNumCostLevels> level{};
  std::array<double, kNumMeasuredTables> table{};

  void add(CostLevel of, MeasuredTable from, double time) {
    level[static_cast<std::size_t>(of)] += time;
    if (from != MeasuredTable::None) table[static_cast<std::size_t>(from)] += time;
  }
  void add(const RestsOn& other, double factor) {
    for (std::size_t i = 0; i < level.size(); ++i) level[i] += factor * other.level[i];
    for (std::size_t i = 0; i < table.size(); ++i) table[i] += factor * other.table[i];
  }
  double sum() const {
    double all = 0;
    for (const double part : level) all += part;
    return all;
  }
};

// A collective that was read off curves or fits of its kind and group, not built from a formula.
constexpr MeasuredTable collective_table(CostLevel level) {
  return level <= CostLevel::Interpolated ? MeasuredTable::Collectives : MeasuredTable::None;
}

}  // namespace rehearse::sim
