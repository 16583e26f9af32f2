// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/compute_cost.h"

#include <algorithm>
#include <cmath>

#include "sim/compute/attention_cost.h"
#include "sim/compute/bandwidth_cost.h"
#include "sim/compute/gemm_cost.h"

namespace rehearse::sim {
namespace {

// From the machine's own tables; empty where they have nothing of the kind.
std::optional<NodeCost> measured_cost(const ComputeCosts& costs, const Node& node) {
  const MeasuredKernels& tables = *costs.measured;
  std::optional<CurveTime> time;
  double shared = costs.sharing.memory_bound;
  if (node.kind() == NodeKind::Gemm) {
    time = tables.gemm(node);
    if (time) time->seconds *= costs.products_over_fp32;
    shared = costs.sharing.matrix_products;
  } else {
    const std::string_view op = MeasuredKernels::memory_op(node, costs.rms_norms);
    if (op.empty()) return NodeCost{.level = CostLevel::Measured};  // no kernel of its own
    const bool backward = node.kind() == NodeKind::NormBackward ||
                          node.kind() == NodeKind::ActivationBackward ||
                          node.kind() == NodeKind::EmbeddingBackward;
    time = tables.memory_bound(op, backward, (costs.widens ? 2 : 1) * node.bytes);
  }
  if (!time) return std::nullopt;
  return NodeCost{.ns = time->seconds * 1e9, .level = time->level, .shared = shared};
}

// What takes longest: the products inside chunks, what they move, or the chain of chunks that wait
// for one another; and every kernel's own time.
NodeCost scan_cost(const ComputeCosts& costs, const Node& node) {
  const KernelScalars& scalars = costs.scalars;
  const double products = node.flops / (scalars.scan_tflops * node.rate * 1e3);
  const double moved =
      static_cast<double>(node.bytes) / (scalars.scan_memory * costs.memory_bytes_per_s) * 1e9;
  const double chain = static_cast<double>(node.serial) * scalars.scan_chunk_us * 1e3;
  return {.ns = std::max({products, moved, chain}) + node.issued() * scalars.kernel_us * 1e3,
          .level = scalars.level_of(scalars.scan_assumed)};
}

NodeCost described_cost(const ComputeCosts& costs, const Node& node) {
  if (node.kind() == NodeKind::Attention || node.kind() == NodeKind::AttentionBackward) {
    return measured_attention_cost(costs, node).value_or(attention_cost(costs, node));
  }
  if (costs.measured) {
    if (const std::optional<NodeCost> cost = measured_cost(costs, node)) return *cost;
  }
  switch (node.kind()) {
    case NodeKind::Gemm:
      return gemm_cost(costs, node);
    case NodeKind::Scan:
      return scan_cost(costs, node);
    default:
      return memory_bound_cost(costs, memory_class(costs, node.kind()),
                               static_cast<double>(node.bytes));
  }
}

// A measured kernel of attention that drops scores draws a random number for each, in either
// direction, as the dropout of an array does for each of its values, which are read and written.
double dropped_scores_ns(const ComputeCosts& costs, const Node& node) {
  if (costs.drops_scores_of == 0 || !costs.measured) return 0;
  const bool backward = node.kind() == NodeKind::AttentionBackward;  // 5 products instead of 2
  const double columns = (backward ? 2.5 : 1.0) * static_cast<double>(costs.drops_scores_of);
  constexpr double kMoved = 2 * 4;  // fp32
  const std::optional<CurveTime> time = costs.measured->memory_bound(
      "dropout", false, std::llround(kMoved * node.flops / (2 * columns)));
  return time ? time->seconds * 1e9 : 0;
}

double correction_of(const Correction& correction, NodeKind kind) {
  switch (kind) {
    case NodeKind::Gemm:
      return correction.products;
    case NodeKind::Attention:
    case NodeKind::AttentionBackward:
      return correction.attention;
    default:
      return correction.memory_bound;
  }
}

}  // namespace

NodeCost price_node(const ComputeCosts& costs, const Node& node) {
  const bool attention =
      node.kind() == NodeKind::Attention || node.kind() == NodeKind::AttentionBackward;
  Node busiest = node;  // it has more pairs than the mean rank, and as many tokens
  if (attention) busiest.flops *= costs.busiest_attention;
  NodeCost cost = described_cost(costs, busiest);
  if (attention) {
    cost.flops16 /= costs.busiest_attention;
    cost.ns += dropped_scores_ns(costs, busiest);
  }
  const double factor = correction_of(costs.correction, node.kind());
  cost.ns *= factor;
  cost.tensor_ns *= factor;
  return cost;
}

double ns_beside(const ComputeCosts& costs, const Node& node, std::int32_t taken_sms) {
  const double alone = price_node(costs, node).ns;
  if (node.kind() != NodeKind::Gemm || costs.measured) return alone;
  return std::max(alone, costs.correction.products * gemm_cost(costs, node, taken_sms).ns);
}

NodeCost price_before(const ComputeCosts& costs, const Node& collective) {
  const std::string_view op = traits_of(collective.kernel).measured;  // a rank's own statistics
  if (!costs.measured || op.empty()) return {};
  const bool maxima = collective.kernel == Kernel::MaximaOverRanks;
  const std::int64_t rows = collective.bytes / (maxima ? 4 : 8);  // fp32: one or two numbers each
  const std::optional<CurveTime> time =
      costs.measured->memory_bound(op, false, 4 * rows * costs.vocabulary);
  if (!time) return {};
  return {.ns = time->seconds * 1e9, .level = time->level, .shared = costs.sharing.memory_bound};
}

}  // namespace rehearse::sim
