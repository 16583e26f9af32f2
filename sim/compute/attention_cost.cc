// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/attention_cost.h"

#include <algorithm>

#include "sim/compute/bandwidth_cost.h"
#include "sim/compute/waves.h"

namespace rehearse::sim {
namespace {

bool is_part(const Node& node) {
  return node.step >= 0;
}

// Queries of a whole see half of the sequence on average.
double causal_length(const ComputeCosts& costs, const Node& node) {
  if (!is_part(node)) return static_cast<double>(costs.sequence);
  const AttentionForm whole{.backward = node.kind() == NodeKind::AttentionBackward};
  return static_cast<double>(costs.attention_size.sequence) * node.flops /
         whole.flops(costs.attention_size);
}

std::int64_t queries_of(const AttentionSize& size) {  // elements of q
  return size.samples * size.sequence * size.heads * size.head_dim;
}

// Forward o, backward dq, dk and dv: read, added to and written; the first part has nothing to
// read. In a block of the ring half of the queries or half of the keys take part.
double sums_ns(const ComputeCosts& costs, const Node& node) {
  if (!is_part(node)) return 0;
  const AttentionSize& size = costs.attention_size;
  const auto queries = static_cast<double>(queries_of(size));
  const double keys = 2 * queries * static_cast<double>(size.kv_heads) /
                      static_cast<double>(size.heads);  // and values
  const double met = node.step > 0 && node.slice < 0 ? 0.75 : 1;
  const bool backward = node.kind() == NodeKind::AttentionBackward;
  const double moved = (node.first && !backward ? 1 : 2) * queries + (backward ? 2 * keys : 0);
  return 4 * met * moved / costs.memory_bytes_per_s * 1e9;
}

}  // namespace

NodeCost attention_cost(const ComputeCosts& costs, const Node& node) {
  const KernelScalars& scalars = costs.scalars;
  const bool backward = node.kind() == NodeKind::AttentionBackward;
  // A fused node under a plan without fused kernels cannot be: take the slowest generation.
  const auto kernel = static_cast<std::size_t>(std::max(costs.attention, AttentionKernel::Flash1));
  const double share =
      backward ? scalars.attention_backward[kernel] : scalars.attention_forward[kernel];
  const double sequence = causal_length(costs, node);
  const double length = sequence / (sequence + scalars.attention_length);
  const double rate =
      costs.peak_flops * share * costs.head_rate * length * busy_share(node.parallel, costs.sms);
  const double memory_ns =
      static_cast<double>(node.bytes) / (scalars.gemm_memory * costs.memory_bytes_per_s) * 1e9;
  // Its rate was found on whole steps and is far below the tensor units': the clock is in it.
  return {.ns = std::max(node.flops / rate * 1e9, memory_ns) + sums_ns(costs, node) +
                scalars.kernel_us * 1e3,
          .level = scalars.level_of(scalars.attention_assumed[kernel]),
          .flops16 = node.flops};
}

std::optional<NodeCost> measured_attention_cost(const ComputeCosts& costs, const Node& node) {
  if (!costs.measured_attention) return std::nullopt;
  const std::optional<CurveTime> time = costs.measured_attention->time(node, costs.attention_size);
  if (!time) return std::nullopt;
  double ns = time->seconds * 1e9;
  if (!costs.measured && is_part(node) && node.first &&
      node.kind() == NodeKind::AttentionBackward) {
    // The part that was measured on a GPU finds dq cleared and rowsum(dO o) done.
    const double bytes = 8.0 * static_cast<double>(queries_of(costs.attention_size));
    ns += memory_bound_cost(costs, MemoryClass::Elementwise, bytes).ns;
  }
  return NodeCost{
      .ns = ns, .level = time->level, .flops16 = node.flops, .shared = costs.sharing.attention};
}

}  // namespace rehearse::sim
