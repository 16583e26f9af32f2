// SPDX-License-Identifier: Apache-2.0
// Dropout (Srivastava et al. 2014) that no layout changes: whether an element is dropped follows
// from its place in the whole model and in the step's batch. Nothing is stored: a backward draws
// the same bits again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "schedules/base/random.h"

namespace rehearse::exec {

// An array whose elements are dropped where their 16 random bits lie below `threshold`; the others
// are multiplied by `scale`. The bits of (row, column, head) are half a word of Philox4x32-7, so
// chosen that a run of 8 columns takes a half of one word each of 8 counters:
//   counter = {column / 64 * 8 + column % 8, row's low and high 32 bits, site * 2^16 + head},
//   word = column / 8 % 4, its lower half where column % 64 < 32.
// Seven rounds: the fewest that pass all of TestU01's BigCrush (Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3", table 2), and what FlashAttention draws its dropout by
// (csrc/flash_attn/src/philox.cuh), with 8 bits of each element.
struct DropoutShape {
  std::uint32_t threshold = 0;  // of 2^16; 0: nothing is dropped
  float scale = 1;
  // Made of the run's seed and the step: an op that drops is not the same in every step.
  std::uint64_t key = 0;
  std::uint32_t site = 0;  // below 2^16: a place in the model where something is dropped
  // Row 0's number among the tokens of the step's batch: sample * sequence + position
  std::int64_t first = 0;
};

// One of what a layer drops. The embedding's is a place of layer 0.
enum class DropoutSite : std::uint8_t { Embedding, Attention, AttentionOutput, MlpOutput };

// The rate is rounded to a multiple of 2^-16 (one above zero to 2^-16 at least), and the scale
// keeps the mean at that rate. REQUIRES: 0 <= rate < 1, layer < 16384
inline DropoutShape dropout_of(double rate, std::uint64_t seed, std::int64_t step,
                               std::int64_t layer, DropoutSite site) {
  DropoutShape shape;
  if (rate > 0) {
    const double steps = std::clamp(std::round(rate * 0x1p16), 1.0, 0x1p16 - 1);
    shape.threshold = static_cast<std::uint32_t>(steps);
    shape.scale = static_cast<float>(0x1p16 / (0x1p16 - steps));
  }
  shape.key = split_mix(split_mix(seed), static_cast<std::uint64_t>(step));
  shape.site = static_cast<std::uint32_t>(layer * 4 + static_cast<std::int64_t>(site));
  return shape;
}

constexpr int kPhiloxRounds = 7;
constexpr std::uint32_t kPhiloxFirst = 0xD2511F53U, kPhiloxSecond = 0xCD9E8D57U;  // multipliers
// What a round adds to the key's words.
constexpr std::uint32_t kPhiloxFirstStep = 0x9E3779B9U, kPhiloxSecondStep = 0xBB67AE85U;

}  // namespace rehearse::exec
