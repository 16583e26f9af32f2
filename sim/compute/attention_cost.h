// SPDX-License-Identifier: Apache-2.0
// Time of a fused (flash) attention core, whole or one part of it, forward or backward.
#pragma once

#include <optional>

#include "schedules/body/body.h"
#include "sim/compute/compute_cost.h"

namespace rehearse::sim {

// Rate = peak * e * s / (s + half_rate_tokens), e by GPU type, kernel generation and direction;
// below four waves of 128-row tiles on the SMs the last one counts whole. Node::flops holds the
// pairs that really run (causal: half of the square), Node::parallel the tiles. A part's s is the
// sequence whose queries would see as many keys each under the causal mask; it reads and writes its
// sums in fp32, which nothing hides.
NodeCost attention_cost(const ComputeCosts& costs, const Node& node);
// From points of the machine's own kernels; empty where there are none of this form.
std::optional<NodeCost> measured_attention_cost(const ComputeCosts& costs, const Node& node);

}  // namespace rehearse::sim
