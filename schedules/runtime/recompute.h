// SPDX-License-Identifier: Apache-2.0
// What of a layer the backward computes again: one value, a set of the layer's parts. `none` of a
// plan is the empty set, `selective` is what the runtime calls so, `full` is the whole layer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "schedules/runtime/runtime.h"

namespace rehearse {

// Parts of a layer whose outputs a framework drops and computes again (NVIDIA/Megatron-LM
// --recompute-modules).
enum class RecomputePart : std::uint8_t {
  AttentionCore,     // core_attn
  Norm,              // layernorm: both norms' outputs
  MlpActivation,     // of dense layers
  ExpertActivation,  // moe_act: of the routed experts
  LatentUp,          // mla_up_proj: queries, keys and values from the compressed ones
  Mlp,               // of dense layers, whole
  Experts,           // moe: router to combine, shared experts too
  SharedExperts,
  DeltaNormOut,     // gdn_norm_out: a delta net's norm and gate
  ResidualStreams,  // mhc: several residual streams, what blocks read of them, and their norms
  Operators,        // torchtitan's selective; no word of a file: all but every second product and
                    // attention
};
// Those that a file may list.
inline constexpr std::size_t kNumRecomputeParts = 10;

class Recompute {
 public:
  constexpr Recompute() = default;  // nothing
  static constexpr Recompute full() {
    Recompute all;
    all.bits_ = (1U << (kNumRecomputeParts + 1)) - 1;
    return all;
  }
  static constexpr Recompute selective(
      SelectiveRecompute what = SelectiveRecompute::AttentionCore) {
    Recompute set;
    set.add(what == SelectiveRecompute::Operators ? RecomputePart::Operators
                                                  : RecomputePart::AttentionCore);
    set.by_word_ = true;
    return set;
  }

  constexpr void add(RecomputePart part) {
    bits_ = static_cast<std::uint16_t>(bits_ | 1U << static_cast<unsigned>(part));
    by_word_ = false;
  }
  constexpr bool has(RecomputePart part) const {
    return (bits_ >> static_cast<unsigned>(part) & 1U) != 0;
  }
  constexpr bool any() const { return bits_ != 0; }
  constexpr bool is_full() const { return *this == full(); }
  // Whether everything of `other` is computed again, and more.
  constexpr bool exceeds(const Recompute& other) const {
    return (bits_ & other.bits_) == other.bits_ && bits_ != other.bits_;
  }
  // Whether files say it by the word `selective`, and not by its parts.
  constexpr bool is_word_selective() const { return by_word_; }

  // Equal sets are equal, however they are said.
  friend constexpr bool operator==(const Recompute& a, const Recompute& b) {
    return a.bits_ == b.bits_;
  }
  friend constexpr std::strong_ordering operator<=>(const Recompute& a, const Recompute& b) {
    return a.bits_ <=> b.bits_;
  }

 private:
  std::uint16_t bits_ = 0;
  bool by_word_ = false;
};

}  // namespace rehearse
