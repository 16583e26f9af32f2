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

// Rows of a piece that lie in so many ranks' shards: one launch, whose tiles end where the shards
// do.
bool in_shards(const Node& node) {
  return node.pieces > 1 && node.batch > 1;
}

// Grouped products are one call each, dealt to a few streams: so many share the SMs.
std::int64_t together(const KernelScalars& scalars, const Node& node) {
  return std::min(node.batch, static_cast<std::int64_t>(scalars.grouped_streams));
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

TableEfficiency table_efficiency(const KernelScalars& scalars, const Node& node,
                                 MeasuredTable table) {
  const GemmTable& of = scalars.gemm_tables[static_cast<std::size_t>(table)];
  const bool accumulate = node.role() == GemmRole::WeightGradient && !of.for_weight_gradients;
  const bool batched = node.batch > 1;
  struct Near {
    double distance = 0, fraction = 0;
  };
  constexpr std::size_t kNeighbours = 4;
  std::array<Near, kNeighbours> near{};
  std::size_t count = 0;
  const auto log_of = [](std::int64_t x) { return std::log(static_cast<double>(x)); };
  const double m = log_of(node.m), n = log_of(node.n), k = log_of(node.k);
  for (const GemmEfficiency& point : scalars.gemm_points) {
    const double dm = m - point.ln_m;
    if (dm * dm >= of.near_distance) continue;  // most, and no other summand is below 0
    if (point.table != table || point.accumulate != accumulate || point.batched != batched)
      continue;
    const double dn = n - point.ln_n, dk = k - point.ln_k;
    const double distance = dm * dm + dn * dn + dk * dk;
    if (distance >= of.near_distance) continue;
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

namespace {

KnownProducts::Reached reached(const KernelScalars& scalars, const Node& node, MeasuredTable type,
                               std::int32_t sms) {
  const TableEfficiency table = table_efficiency(scalars, node, type);
  if (table.fraction > 0) return {table.fraction, true, table.exact};
  return {scalars.gemm_sustained *
          tile_wave_efficiency(scalars, sms, node.m, node.n, node.k, together(scalars, node))};
}

KnownProducts::Reached reached(const ComputeCosts& costs, const Node& node, MeasuredTable type,
                               std::int32_t sms) {
  if (costs.known_products == nullptr) return reached(costs.scalars, node, type, sms);
  const auto role = static_cast<std::int64_t>(node.role()), table = static_cast<std::int64_t>(type);
  KnownProducts::Reached& known = costs.known_products->of(
      {node.m, node.n, node.k, node.batch, (std::int64_t{sms} << 16) + (table << 8) + role});
  if (known.fraction == 0) known = reached(costs.scalars, node, type, sms);
  return known;
}

}  // namespace

NodeCost gemm_cost(const ComputeCosts& costs, const Node& node, std::int32_t taken) {
  const KernelScalars& scalars = costs.scalars;
  const std::int32_t sms = std::max(costs.sms - taken, 1);
  const bool fp8 = node.fp8 && costs.fp8;
  const double memory_ns =
      static_cast<double>(node.bytes) / (scalars.gemm_memory * costs.memory_bytes_per_s) * 1e9;
  NodeCost cost{.level = scalars.level, .flops16 = node.flops * (fp8 ? scalars.fp8_energy : 1)};
  double peak = costs.peak_flops * (fp8 ? scalars.fp8_rate * costs.fp8_factor : 1);
  const bool gradient = node.role() == GemmRole::WeightGradient;
  double fraction = 0;
  if (!costs.tensor_cores) {
    fraction = scalars.gemm_sustained;
  } else if (node.role() == GemmRole::None) {  // unfused attention: many small products
    fraction = scalars.batched_sustained;
    cost.level = scalars.level_of(scalars.batched_assumed);
  } else {
    // A table in 16 bit says nothing about 8 bit: each has the points and the peak of its type.
    const MeasuredTable type = fp8 ? costs.quantised : MeasuredTable::Products;
    // What was measured are products of rows that lie together.
    Node whole = node;
    if (in_shards(node)) {
      whole.m *= whole.batch;
      whole.batch = 1;
    }
    const KnownProducts::Reached of = reached(costs, whole, type, sms);
    bool measured_gradient = false;
    fraction = of.fraction;
    if (of.of_table) {
      if (fp8) peak = costs.quantised_peak_flops;
      cost.level = of.exact ? CostLevel::Measured : CostLevel::Interpolated;
      cost.table = type;
      measured_gradient = !scalars.gemm_tables[static_cast<std::size_t>(type)].for_weight_gradients;
    }
    if (in_shards(node)) {
      fraction *= tile_wave_efficiency(scalars, sms, node.m, node.n, node.k, node.batch) /
                  tile_wave_efficiency(scalars, sms, whole.m, whole.n, whole.k, 1);
    }
    // Tables with accumulation hold weight gradients themselves.
    if (gradient && !measured_gradient) peak /= scalars.weight_gradient;
  }
  if (taken > 0) peak *= static_cast<double>(sms) / costs.sms;
  const double tensor_ns = node.flops / (peak * fraction) * 1e9;
  cost.tensor_ns = std::max(tensor_ns, memory_ns);
  cost.ns = std::max(tensor_ns / costs.clock, memory_ns) + scalars.kernel_us * 1e3;
  return cost;
}

}  // namespace rehearse::sim
