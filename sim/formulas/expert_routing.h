// SPDX-License-Identifier: Apache-2.0
// How the tokens of a layer spread over its experts: how many ranks or nodes one token visits, and
// how far the busiest of them lies above the mean.
//
// Closed forms for random routing. What a trained router does to the balance is no result of these:
// it is an input (LoadBalance::Factor). Experts lie in contiguous equal blocks, the first block on
// the first rank (experts.md 1.4; Megatron-LM parallel_state.py).
#pragma once

#include <cstdint>

namespace rehearse::sim {

// Which experts a token may choose. With limited groups (DeepSeek-V3, arXiv 2412.19437, section
// 2.1.2: a token goes to at most so many nodes) all experts of a token are in `kept_groups` of
// `groups` equal groups. REQUIRES: groups divides experts; 1 <= kept_groups <= groups;
// per_token <= experts of the kept groups.
struct Routing {
  std::int32_t experts = 1;    // E
  std::int32_t per_token = 1;  // k
  std::int32_t groups = 1, kept_groups = 1;
};

// D: of `parts` equal blocks of experts (ranks, nodes), how many one token's experts are in, on
// average; 1 <= D <= min(k, parts). Every choice of groups and of experts in them is equally
// likely. REQUIRES: parts divides experts.
double expected_parts(const Routing& routing, std::int32_t parts);

// Rows of the busiest of `parts` blocks over the mean, where `tokens` choose on their own: mean + c
// sigma, c the expected maximum of so many normal variables whose sum is fixed. Good to 0.3 % from
// a thousand rows per part on (experts.md 4.4, by simulation). REQUIRES: parts divides experts.
double expected_busiest(const Routing& routing, double tokens, std::int32_t parts);

// The largest of `count` independent standard normal variables, on average: 0.564, 1.029, 1.424 for
// 2, 4, 8 (by numerical integration).
double expected_maximum(std::int32_t count);

enum class LoadBalance : std::uint8_t {
  Balanced,  // every expert has equally many rows
  Uniform,   // random: expected_busiest
  Factor,    // the busiest rank has so many times the mean
};

// What a plan says of the balance of its experts.
struct ExpertLoad {
  LoadBalance balance = LoadBalance::Balanced;
  double factor = 1;  // of Factor, >= 1
};

// Rows of the busiest part over the mean, >= 1.
double busiest_over_mean(const ExpertLoad& load, const Routing& routing, double tokens,
                         std::int32_t parts);

}  // namespace rehearse::sim
