// SPDX-License-Identifier: Apache-2.0
// ZeRO-3's parameters gathered in 8 bit (qwZ of ZeRO++, Wang et al. 2023, arXiv 2306.10209, section
// 3.1): each rank quantizes its shard, with a scale in fp32 for every block of it, and what comes
// is dequantized. Master copies are not touched, so errors do not add up over steps.
#pragma once

#include <cstdint>

#include "schedules/scenario/plan.h"

namespace rehearse {

// Values under one scale of our executor's: blocks begin with every tensor, at multiples of this in
// it, and with a shard.
inline constexpr std::int64_t kGatherBlock = 256;

inline bool quantizes_gathers(const Plan& plan) {
  return plan.quantized_gather == 8;
}

// Scales of a shard of so many values, which lie in so many tensors at most. REQUIRES: the values
// are a multiple of 64, as buckets are padded.
std::int64_t gather_scales(const Plan& plan, std::int64_t values, std::int64_t tensors);
// [B] of such a shard on its way.
std::int64_t quantized_bytes(const Plan& plan, std::int64_t values, std::int64_t tensors);

}  // namespace rehearse
