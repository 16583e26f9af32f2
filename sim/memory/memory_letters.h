// SPDX-License-Identifier: Apache-2.0
// What a memory profile's scripts are written in, of one model and plan: the bytes behind every
// size letter, and which conditions hold.
#pragma once

#include <array>
#include <cstdint>

#include "schedules/scenario/layout.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// Bytes of every size letter: of a dense layer, and of one with experts.
struct SizeLetters {
  std::array<std::int64_t, kNumSizeLetters> value{};
  std::int64_t bytes(const SizeFormula& formula) const;
};
SizeLetters size_letters(const Layout& layout, bool experts);
// `rotates`: of the layer's queries and keys, where the model's do (body.h).
Flags script_flags(const MemoryProfile& profile, const Layout& layout, bool experts,
                   bool rotates = true);

}  // namespace rehearse::sim
