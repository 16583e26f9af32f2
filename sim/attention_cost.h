// Time of a fused (flash) attention core, forward or backward.
#pragma once

#include "schedules/body.h"
#include "sim/compute_cost.h"

namespace rehearse::sim {

// Rate = peak * e * s / (s + half_rate_tokens), e by GPU type, kernel generation and direction;
// below four waves of 128-row tiles on the SMs the last one counts whole. Node::flops holds the
// pairs that really run (causal: half of the square), Node::parallel the tiles.
NodeCost attention_cost(const ComputeCosts& costs, const Node& node);

}  // namespace rehearse::sim
