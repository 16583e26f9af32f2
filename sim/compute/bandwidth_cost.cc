// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/bandwidth_cost.h"

namespace rehearse::sim {

MemoryClass memory_class(const ComputeCosts& costs, NodeKind kind) {
  switch (kind) {
    case NodeKind::Norm:
    case NodeKind::NormBackward:
      return costs.norm;
    case NodeKind::Activation:
    case NodeKind::ActivationBackward:
      return MemoryClass::Activation;
    case NodeKind::Dropout:
      return MemoryClass::Dropout;
    case NodeKind::Rope:
      return MemoryClass::Rope;
    case NodeKind::Softmax:
      return MemoryClass::Softmax;
    case NodeKind::CrossEntropy:
      return MemoryClass::CrossEntropy;
    case NodeKind::Convolution:
      return MemoryClass::Convolution;
    case NodeKind::Elementwise:
    case NodeKind::Embedding:
    case NodeKind::EmbeddingBackward:
    case NodeKind::Gemm:
    case NodeKind::Attention:
    case NodeKind::AttentionBackward:
    case NodeKind::AllReduce:
    case NodeKind::AllGather:
    case NodeKind::ReduceScatter:
    case NodeKind::AllToAll:
    case NodeKind::Broadcast:
    case NodeKind::Reduce:
    case NodeKind::RingExchange:
    case NodeKind::Permute:
    case NodeKind::Dispatch:
    case NodeKind::Combine:
    case NodeKind::Scan:
      return MemoryClass::Elementwise;
  }
  return MemoryClass::Elementwise;
}

NodeCost memory_bound_cost(const ComputeCosts& costs, MemoryClass memory_class, double bytes) {
  if (bytes <= 0) return {.level = costs.scalars.level};
  const auto of = static_cast<std::size_t>(memory_class);
  const double share = costs.scalars.memory[of];
  return {.ns = bytes / (share * costs.memory_bytes_per_s) * 1e9 + costs.scalars.kernel_us * 1e3,
          .level = costs.scalars.level_of(costs.scalars.memory_assumed[of])};
}

}  // namespace rehearse::sim
