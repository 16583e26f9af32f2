// SPDX-License-Identifier: Apache-2.0
// How many ranks or nodes one token visits: closed forms for random routing.
//
// Experts lie in contiguous equal blocks, the first block on the first rank (as in
// Megatron-LM parallel_state.py).
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/model/model.h"

namespace rehearse {

// Which experts a token may choose. With limited groups (DeepSeek-V3, arXiv 2412.19437, section
// 2.1.2: a token goes to at most so many nodes) all experts of a token are in `kept_groups` of
// `groups` equal groups. REQUIRES: groups divides experts; 1 <= kept_groups <= groups;
// per_token <= experts of the kept groups.
struct Routing {
  std::int32_t experts = 1;    // E
  std::int32_t per_token = 1;  // k
  std::int32_t groups = 1, kept_groups = 1;
  std::int32_t kept_experts() const { return experts / groups * kept_groups; }
};
Routing routing_of(const Experts& experts);

// Chance that so many of a part's experts, by index, are in the kept groups: `part` of `parts`
// equal blocks of experts. REQUIRES: parts divides experts.
std::vector<double> eligible_experts(const Routing& routing, std::int32_t part, std::int32_t parts);
// Blocks that cut the groups evenly are all alike: the first stands for them. Else all differ.
std::int32_t different_parts(const Routing& routing, std::int32_t parts);

// D: of `parts` equal blocks of experts (ranks, nodes), how many one token's experts are in, on
// average; 1 <= D <= min(k, parts). Every choice of groups and of experts in them is equally
// likely. REQUIRES: parts divides experts.
double expected_parts(const Routing& routing, std::int32_t parts);

}  // namespace rehearse
