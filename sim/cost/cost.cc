// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/cost.h"

#include <array>

namespace rehearse::sim {
namespace {

struct LevelRow {
  std::string_view name;
  double error_band;
};
// Bands: leave-one-out residuals of the measured GEMM tables (docs/cost_models.md).
constexpr std::array<LevelRow, kNumCostLevels> kLevels{{
    {"measured", 0.02},
    {"interpolated", 0.07},
    {"formula", 0.10},
    {"datasheet", 0.25},
}};

}  // namespace

std::string_view name_of(CostLevel level) {
  return kLevels[static_cast<std::size_t>(level)].name;
}
double error_band(CostLevel level) {
  return kLevels[static_cast<std::size_t>(level)].error_band;
}

}  // namespace rehearse::sim
