// SPDX-License-Identifier: Apache-2.0
// What a block of a framework's memory is for; the order is that of the report's parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rehearse::sim {

enum class MemoryPart : std::uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,
  Buffers,
  Workspace
};
inline constexpr std::size_t kNumMemoryParts = 6;
using MemoryBytes = std::array<std::int64_t, kNumMemoryParts>;  // [B], per MemoryPart

}  // namespace rehearse::sim
