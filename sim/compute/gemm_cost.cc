// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/gemm_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse::sim {
namespace {

double ceil_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t whole = (a + b - 1) / b;
  return static_cast<double>(whole);
}

bool same_kind(const GemmEfficiency& point, const Node& node, bool fp8) {
  return point.fp8 == fp8 && point.accumulate == (node.role() == GemmRole::WeightGradient) &&
         point.batched == (node.batch > 1);
}

}  // namespace

double tile_wave_efficiency(const KernelScalars& scalars, std::int32_t sms, std::int64_t m,
                            std::int64_t n, std::int64_t k, std::int64_t batch) {
  const double output =
      static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(batch);
  double best = 0;
  for (const GemmTile& tile : scalars.tiles) {
    const double tiles =
        ceil_divide(m, tile.m) * ceil_divide(n, tile.n) * static_cast<double>(batch);
    const double waves = std::ceil(tiles / sms);
    const double covered = waves * sms * static_cast<double>(tile.m) * static_cast<double>(tile.n);
    best = std::max(best, output / covered * tile.rate);
  }
  return best / (1 + scalars.gemm_prologue / static_cast<double>(k));
}

TableEfficiency table_efficiency(const KernelScalars& scalars, const Node& node, bool fp8) {
  struct Near {
    double distance = 0, fraction = 0;
  };
  constexpr std::size_t kNeighbours = 4;
  std::array<Near, kNeighbours> near{};
  std::size_t count = 0;
  const auto log_of = [](std::int64_t x) { return std::log(static_cast<double>(x)); };
  const double m = log_of(node.m), n = log_of(node.n), k = log_of(node.k);
  for (const GemmEfficiency& point : scalars.gemm_points) {
    if (!same_kind(point, node, fp8)) continue;
    const double dm = m - point.ln_m, dn = n - point.ln_n, dk = k - point.ln_k;
    const double distance = dm * dm + dn * dn + dk * dk;
    if (distance >= scalars.near_distance) continue;
    if (distance == 0) return {.fraction = point.fraction, .exact = true};
    // Insert into the sorted few; equal distances keep the order of the table.
    std::size_t at = count;
    while (at > 0 && near[at - 1].distance > distance) --at;
    if (at == kNeighbours) continue;
    count = std::min(count + 1, kNeighbours);
    for (std::size_t i = count - 1; i > at; --i) near[i] = near[i - 1];
    near[at] = {distance, point.fraction};
  }
  double weights = 0, sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = 1 / (near[i].distance + 0.02);
    weights += weight;
    sum += weight * near[i].fraction;
  }
  return {.fraction = weights > 0 ? sum / weights : 0};
}

NodeCost gemm_cost(const ComputeCosts& costs, const Node& node) {
  const KernelScalars& scalars = costs.scalars;
  const bool fp8 = node.fp8 && costs.fp8;
  const double memory_ns =
      static_cast<double>(node.bytes) / (scalars.gemm_memory * costs.memory_bytes_per_s) * 1e9;
  NodeCost cost{.level = scalars.level, .flops16 = node.flops * (fp8 ? scalars.fp8_energy : 1)};
  double peak = costs.peak_flops * (fp8 ? scalars.fp8_rate * costs.fp8_factor : 1);
  double fraction = 0;
  if (!costs.tensor_cores) {
    fraction = scalars.gemm_sustained;
  } else if (node.role() == GemmRole::None) {  // unfused attention: many small products
    fraction = scalars.batched_sustained;
    cost.level = scalars.level_of(scalars.batched_assumed);
  } else {
    TableEfficiency table;
    // A table in 16 bit says nothing about 8 bit; its points are fractions of the 16-bit peak.
    table = table_efficiency(scalars, node, fp8);
    if (table.fraction > 0) {
      fraction = table.fraction;
      cost.level = table.exact ? CostLevel::Measured : CostLevel::Interpolated;
    } else {
      fraction = scalars.gemm_sustained *
                 tile_wave_efficiency(scalars, costs.sms, node.m, node.n, node.k, node.batch);
    }
    // Tables with accumulation hold weight gradients themselves.
    if (node.role() == GemmRole::WeightGradient && table.fraction <= 0)
      peak /= scalars.weight_gradient;
  }
  const double tensor_ns = node.flops / (peak * fraction) * 1e9;
  cost.tensor_ns = std::max(tensor_ns, memory_ns);
  cost.ns = std::max(tensor_ns / costs.clock, memory_ns) + scalars.kernel_us * 1e3;
  return cost;
}

}  // namespace rehearse::sim
