// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU's kernels run with: the fastest that this machine has, or the one
// that the environment's REHEARSE_ISA names. Chosen once.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse::exec {

std::string_view instruction_set();  // "avx512", "avx2", "generic"
// Fails where the environment's REHEARSE_ISA names a set that this machine lacks: says what it has.
Result<> instruction_set_as_asked();
// What a thread keeps of a product's and an attention's operands [B]; width: of a head's keys or
// values, whichever are wider.
std::int64_t kernel_room_bytes(std::int64_t width);

}  // namespace rehearse::exec
