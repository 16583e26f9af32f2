// SPDX-License-Identifier: Apache-2.0
// Private to exec/body: the functions that perform nodes, and which of them a kernel's node has.
#pragma once

#include <array>
#include <cstddef>

#include "exec/body/op_view.h"

namespace rehearse::exec {

using NodeFunction = void(const OpView& op, const Node& n);

#define NODE(kernel, function) NodeFunction function;
#include "exec/body/node_rows.inc"

struct NodeRow {
  Kernel kernel{};
  NodeFunction* perform = nullptr;
  bool statistics = false;
};
inline constexpr std::array<NodeRow, kKernels> kNodeRows{{
#define NODE(kernel, function) {Kernel::kernel, function},
#define STATISTICS(kernel, function) {Kernel::kernel, function, true},
#include "exec/body/node_rows.inc"
}};
constexpr const NodeRow& node_row(const Node& n) {
  return kNodeRows[static_cast<std::size_t>(n.kernel)];
}
static_assert(
    [] {
      for (std::size_t k = 0; k < kKernels; ++k) {
        if (kNodeRows[k].kernel != static_cast<Kernel>(k)) return false;
      }
      return true;
    }(),
    "a row for every kernel, in their order");

// Do they share memory?
inline bool overlap(const BodyTensor& a, const BodyTensor& b) {
  return a.home == b.home && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace rehearse::exec
