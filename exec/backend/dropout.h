// SPDX-License-Identifier: Apache-2.0
// Dropout (Srivastava et al. 2014) that no layout changes: whether an element is dropped follows
// from its place in the whole model and in the step's batch. Nothing is stored: a backward draws
// the same bits again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedules/base/random.h"

namespace rehearse::exec {

// An array whose elements are dropped where their 32 random bits lie below `threshold`; the others
// are multiplied by `scale`. The bits of (row, column, head) are a word of Philox4x32-10 (Salmon et
// al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), so chosen that a run of 16 columns
// takes one word each of 16 counters:
//   counter = {column / 64 * 16 + column % 16, row's low and high 32 bits, site * 2^16 + head},
//   word = column / 16 % 4.
struct DropoutShape {
  std::uint32_t threshold = 0;  // 0: nothing is dropped
  float scale = 1;
  // Of the run's seed and the step: an op that drops is not the same in every step.
  std::uint64_t key = 0;
  std::uint32_t site = 0;  // below 2^16: a place in the model where something is dropped
  // Row 0's number among the tokens of the step's batch: sample * sequence + position
  std::int64_t first = 0;
};

// One of what a layer drops. The embedding's is a place of layer 0.
enum class DropoutSite : std::uint8_t { Embedding, Attention, AttentionOutput, MlpOutput };

// REQUIRES: 0 <= rate < 1, layer < 16384
inline DropoutShape dropout_of(double rate, std::uint64_t seed, std::int64_t step,
                               std::int64_t layer, DropoutSite site) {
  DropoutShape shape;
  shape.threshold = static_cast<std::uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  shape.scale = static_cast<float>(1 / (1 - rate));
  shape.key = split_mix(split_mix(seed), static_cast<std::uint64_t>(step));
  shape.site = static_cast<std::uint32_t>(layer * 4 + static_cast<std::int64_t>(site));
  return shape;
}

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxFirst = 0xD2511F53U, kPhiloxSecond = 0xCD9E8D57U;  // multipliers
// What a round adds to the key's words.
constexpr std::uint32_t kPhiloxFirstStep = 0x9E3779B9U, kPhiloxSecondStep = 0xBB67AE85U;

}  // namespace rehearse::exec
