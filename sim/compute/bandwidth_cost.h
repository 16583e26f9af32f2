// SPDX-License-Identifier: Apache-2.0
// Time of a memory-bound kernel: bytes over the share of the bandwidth that its class reaches.
#pragma once

#include "schedules/body/body.h"
#include "sim/compute/compute_cost.h"

namespace rehearse::sim {

// REQUIRES: neither a product, nor fused attention, nor a collective.
MemoryClass memory_class(const ComputeCosts& costs, NodeKind kind);
NodeCost memory_bound_cost(const ComputeCosts& costs, MemoryClass memory_class, double bytes);

}  // namespace rehearse::sim
