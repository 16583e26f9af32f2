// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli; RFC 3720, appendix B.4): what a checkpoint's bytes are recognised by. Every
// change of up to 32 neighbouring bits changes it; it is no protection against who means harm.
//
// By the processor's instruction where it has one (SSE4.2): 8 bytes in three cycles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rehearse::exec {

// The sum of `before` and `data`, one after the other; `before` is the sum so far, 0 at the
// beginning.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before = 0);
// The same without the processor's instruction.
std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t before = 0);

}  // namespace rehearse::exec
