// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/fused_nodes.h"

namespace rehearse::sim {
namespace {

bool reads(const Node& node, std::int16_t tensor) {
  return !node.reads.empty() && node.reads.front() == tensor;
}

}  // namespace

FusedNode fused_node(std::span<const Node> nodes, std::size_t i, bool bf16) {
  const Node& node = nodes[i];
  const Node* before = i > 0 ? &nodes[i - 1] : nullptr;
  switch (node.kind) {
    case NodeKind::Norm:  // of a residual sum: it is not read again, half of what moves
      if (before != nullptr && before->kind == NodeKind::Elementwise && !before->writes.empty() &&
          reads(node, before->writes.front())) {
        return {node.bytes / 2, false};
      }
      break;
    case NodeKind::Activation:  // GELU, while the product writes u: u is not read again
      if (bf16 && node.name == "gelu") return {node.bytes / 2, false};
      break;
    case NodeKind::ActivationBackward:  // while the product writes dg, which becomes du: u is read
      if (bf16 && node.name == "gelu backward") return {node.bytes / 3, false};
      break;
    case NodeKind::CrossEntropy:  // maxima and sums in one pass over the logits, loss in a second
      if (node.name == "row sums, targets") return {0, false};
      if (before != nullptr && before->name == "row sums, targets") return {node.bytes, false};
      break;
    default:
      break;
  }
  return {node.bytes, true};
}

}  // namespace rehearse::sim
