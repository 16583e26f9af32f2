// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU's kernels run with: the fastest that this machine has, or the one
// that the environment's REHEARSE_ISA names. Chosen once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse::exec {

// Every set that kernels are compiled for, on some processor or other.
inline constexpr std::array<std::string_view, 5> kInstructionSets{"generic", "avx2", "avx512",
                                                                  "avx512_bf16", "amx"};
// Their names for people, `last` before the last.
std::string instruction_sets(std::string_view between, std::string_view last);
std::string_view instruction_set();  // the chosen one
// Fails where the environment's REHEARSE_ISA names a set that this machine lacks: says what it has.
Result<> instruction_set_as_asked();
// What decides how much a thread keeps of a product's and an attention's operands.
struct KernelRoom {
  std::int64_t width = 0;     // of a head's keys or values, whichever are wider
  std::int64_t sequence = 0;  // the longest whose attention is whole; 0: all have parts
  bool widens = false;        // elements are of 16 bits
};
std::int64_t kernel_room_bytes(const KernelRoom& room);  // [B]

}  // namespace rehearse::exec
