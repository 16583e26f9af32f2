// SPDX-License-Identifier: Apache-2.0
// Nodes that our executor's GPU backend runs in one pass with a neighbour (exec/body,
// docs/cuda.md): what such a node still moves, and that it is no launch of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schedules/body/body.h"

namespace rehearse::sim {

struct FusedNode {
  std::int64_t bytes = 0;
  bool launched = true;
};

// Node `i` of a body of the rehearse runtime; `bf16`: GELU is part of its products.
FusedNode fused_node(std::span<const Node> nodes, std::size_t i, bool bf16);

}  // namespace rehearse::sim
