// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/expert_kernels.h"

#include <algorithm>
#include <utility>

#include "sim/compute/bandwidth_cost.h"
#include "sim/compute/gemm_cost.h"

namespace rehearse::sim {
namespace {

constexpr double kValue = 2;  // [B] 16 bit

double operand_bytes(const GroupedProduct& p) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n),
             k = static_cast<double>(p.k);
  const double value = p.block_fp8 ? 1 : kValue;
  return static_cast<double>(p.experts) * (value * k * (m + n) + kValue * m * n);
}

double flops_of(const GroupedProduct& p) {
  return 2 * static_cast<double>(p.experts) * static_cast<double>(p.m) * static_cast<double>(p.n) *
         static_cast<double>(p.k);
}

// A weight gradient that overwrites is a product like any other.
Kernel kernel_of(const GroupedProduct& p) {
  switch (p.role) {
    case GemmRole::WeightGradient:
      return p.accumulates ? Kernel::LinearWeight : Kernel::Linear;
    case GemmRole::InputGradient:
      return Kernel::LinearInput;
    default:
      return Kernel::Linear;
  }
}

NodeCost block_fp8_cost(const ComputeCosts& costs, const GroupedProduct& p) {
  const KernelScalars& s = costs.scalars;
  const bool weight = p.role == GemmRole::WeightGradient;
  const double fraction = weight ? s.block_fp8_weight_gradient : s.block_fp8;
  const double prologue = weight ? s.block_fp8_weight_gradient_prologue : s.block_fp8_prologue;
  constexpr std::int64_t kLong = std::int64_t{1} << 40;  // its own prologue counts, not 16 bit's
  const double waves = tile_wave_efficiency(s, costs.sms, p.m, p.n, kLong, p.experts);
  const double rate = 2 * costs.peak_flops * fraction * waves /
                      (1 + prologue / static_cast<double>(std::max<std::int64_t>(1, p.k)));
  const double memory_ns = operand_bytes(p) / (s.gemm_memory * costs.memory_bytes_per_s) * 1e9;
  const double tensor_ns = flops_of(p) / rate * 1e9;
  return {.ns = std::max(tensor_ns / costs.clock, memory_ns) + s.kernel_us * 1e3,
          .level = s.level,
          .tensor_ns = std::max(tensor_ns, memory_ns),
          .flops16 = flops_of(p) * s.fp8_energy};
}

}  // namespace

NodeCost grouped_product_cost(const ComputeCosts& costs, const GroupedProduct& p) {
  if (p.experts <= 0 || p.m <= 0 || p.n <= 0 || p.k <= 0) return {.level = costs.scalars.level};
  if (p.block_fp8) return block_fp8_cost(costs, p);
  return gemm_cost(costs, {.kernel = kernel_of(p),
                           .m = p.m,
                           .n = p.n,
                           .k = p.k,
                           .batch = p.experts,
                           .flops = flops_of(p),
                           .bytes = static_cast<std::int64_t>(operand_bytes(p))});
}

NodeCost permutation_cost(const ComputeCosts& costs, double rows_read, double rows_written,
                          std::int64_t hidden) {
  const double bytes = (rows_read + rows_written) * static_cast<double>(hidden) * kValue;
  return memory_bound_cost(costs, MemoryClass::Elementwise, bytes);
}

NodeCost quantisation_cost(const ComputeCosts& costs, double values) {
  return memory_bound_cost(costs, MemoryClass::Activation, values * (kValue + 1 + 1));
}

NodeCost expert_activation_cost(const ComputeCosts& costs, double rows, std::int64_t width,
                                bool gated, bool backward) {
  const double columns = gated ? (backward ? 5 : 3) : (backward ? 3 : 2);
  return memory_bound_cost(costs, MemoryClass::Activation,
                           rows * columns * static_cast<double>(width) * kValue);
}

NodeCost router_cost(const ComputeCosts& costs, std::int64_t tokens, std::int64_t hidden,
                     std::int32_t experts, bool backward) {
  // scores, top k, counts, auxiliary loss, the map
  constexpr int kSmallKernels = 6;
  constexpr double kFp32 = 4;
  const auto n = static_cast<double>(tokens);
  const double passes = backward ? 3 : 1;
  const double bytes = passes * n * static_cast<double>(hidden) * kValue + 2 * n * kFp32 * experts;
  NodeCost cost = memory_bound_cost(costs, MemoryClass::Elementwise, bytes);
  cost.ns += kSmallKernels * costs.scalars.kernel_us * 1e3;
  return cost;
}

ComputeCosts burst_costs(const Cluster& cluster, KernelScalars scalars) {
  scalars.gemm_sustained = scalars.gemm_burst;
  scalars.gemm_points.clear();  // fractions that training keeps
  ComputeCosts costs{.scalars = std::move(scalars)};
  costs.peak_flops = cluster.peak_flops(ComputeType::Bf16).value_or(0);
  costs.memory_bytes_per_s = cluster.gpu.memory_bandwidth.value;
  costs.sms = std::max(1, cluster.gpu.sm_count);
  return costs;
}

}  // namespace rehearse::sim
