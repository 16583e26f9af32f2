#include "sim/compute_cost.h"

#include "sim/attention_cost.h"
#include "sim/gemm_cost.h"
#include "sim/memory_bound_cost.h"

namespace rehearse::sim {

NodeCost price_node(const ComputeCosts& costs, const Node& node) {
  switch (node.kind) {
    case NodeKind::Gemm:
      return gemm_cost(costs, node);
    case NodeKind::Attention:
    case NodeKind::AttentionBackward:
      return attention_cost(costs, node);
    default:
      return memory_bound_cost(costs, memory_class(node.kind), static_cast<double>(node.bytes));
  }
}

}  // namespace rehearse::sim
