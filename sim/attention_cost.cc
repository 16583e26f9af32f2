#include "sim/attention_cost.h"

#include <algorithm>
#include <cmath>

namespace rehearse::sim {

NodeCost attention_cost(const ComputeCosts& costs, const Node& node) {
  const KernelScalars& scalars = costs.scalars;
  const bool backward = node.kind == NodeKind::AttentionBackward;
  // A fused node under a plan without fused kernels cannot be: take the slowest generation.
  const auto kernel = static_cast<std::size_t>(std::max(costs.attention, AttentionKernel::Flash1));
  const double share =
      backward ? scalars.attention_backward[kernel] : scalars.attention_forward[kernel];
  const double sequence = static_cast<double>(costs.sequence);
  const double length = sequence / (sequence + scalars.attention_length);
  constexpr double kFewWaves = 4;  // beyond it the last wave is a small part
  const double waves = static_cast<double>(node.parallel) / std::max(1, costs.sms);
  const double filled = waves > 0 && waves < kFewWaves ? waves / std::ceil(waves) : 1;
  const double rate = costs.peak_flops * share * length * filled;
  const double memory_ns =
      static_cast<double>(node.bytes) / (scalars.gemm_memory * costs.memory_bytes_per_s) * 1e9;
  // Its rate was found on whole steps and is far below the tensor units': the clock is in it.
  return {.ns = std::max(node.flops / rate * 1e9, memory_ns) + scalars.kernel_us * 1e3,
          .level = scalars.level,
          .flops16 = node.flops};
}

}  // namespace rehearse::sim
