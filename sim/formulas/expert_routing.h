// SPDX-License-Identifier: Apache-2.0
// How the tokens of a layer spread over its experts: how far the busiest rank or node lies above
// the mean. How many of them one token visits, schedules/model/expert_parts.h knows.
//
// Closed forms for random routing. What a trained router does to the balance is no result of these:
// it is an input (LoadBalance::Factor).
#pragma once

#include <cstdint>

#include "schedules/model/expert_parts.h"

namespace rehearse::sim {

using rehearse::expected_parts;
using rehearse::Routing;

// Rows of the busiest of `parts` blocks over the mean, where `tokens` choose on their own: mean + c
// sigma, c the expected maximum of so many normal variables whose sum is fixed. Good to 0.3 % from
// a thousand rows per part on (by simulation: expert_routing_test). REQUIRES: parts divides
// experts.
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
