// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/fused_nodes.h"

#include "schedules/base/kept_row.h"

namespace rehearse::sim {
namespace {

bool reads(const Node& node, std::int16_t tensor) {
  return !node.reads.empty() && node.reads.front() == tensor;
}

}  // namespace

FusedNode fused_node(std::span<const Node> nodes, std::size_t i, bool bf16) {
  const Node& node = nodes[i];
  const Node* before = i > 0 ? &nodes[i - 1] : nullptr;
  switch (traits_of(node.kernel).fused) {
    case FusedWith::Sum:  // it is not read again, half of what moves
      if (before != nullptr && before->kind() == NodeKind::Elementwise && !before->writes.empty() &&
          reads(node, before->writes.front())) {
        return {node.bytes / 2, false};
      }
      break;
    case FusedWith::Product:  // while it writes u: u is not read again
      if (bf16) return {node.bytes / 2, false};
      break;
    case FusedWith::ProductBackward:  // while it writes dg, which becomes du: u is read
      if (bf16) return {node.bytes / 3, false};
      break;
    case FusedWith::Maxima:
      return {0, false};
    case FusedWith::Statistics:
      if (before != nullptr && before->kernel == Kernel::RowSums) {
        // It writes what it read, a second time where a row is not kept.
        const bool kept = node.n * (bf16 ? 2 : 4) <= kKeptRowBytes;
        return {kept ? node.bytes / 2 : node.bytes, false};
      }
      break;
    case FusedWith::Nothing:
      break;
  }
  return {node.bytes, true};
}

}  // namespace rehearse::sim
