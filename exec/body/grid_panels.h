// SPDX-License-Identifier: Apache-2.0
// Private to exec/body: who of a grid of tensor parallel ranks has a panel, and where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/body/op_view.h"

namespace rehearse::exec {

// The parameter that the node is about, its weight or bias: this rank's part of it.
inline const std::byte* parameter_of(const OpView& op, const Node& n) {
  return n.of_bias ? op.bias(n) : op.parameter(n);
}

// Whether this rank has the panel; what is no panel every rank has.
inline bool owns_panel(const OpView& op, const Node& n) {
  switch (n.axis) {
    case Axis::TensorRow:
      return op.grid_column() == n.owner;
    case Axis::TensorColumn:
      return op.grid_row() == n.owner;
    default:
      return true;
  }
}

// What the rank brings to a broadcast or gather that reads a parameter.
inline std::byte* brought_of_parameter(const OpView& op, const Node& n) {
  const bool panel = n.kernel == Kernel::BroadcastPanel;
  if (panel && !owns_panel(op, n)) return op.out(n);
  // Read alone.
  auto* from = const_cast<std::byte*>(parameter_of(op, n));
  return panel ? op.element(from, n.panel * n.n) : from;
}

}  // namespace rehearse::exec
