// Memory of our own executor: read off the arena plan that the schedule carries.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "sim/memory.h"

namespace rehearse::sim {

// Which of the report's parts a value counts to: index into kAllocatedParts.
inline constexpr std::string_view kAllocatedParts[] = {"parameters",  "gradients", "optimizer",
                                                       "activations", "buffers",   "workspace"};
inline constexpr std::size_t kNumAllocatedParts = 6;
std::size_t part_of(const Value& value);

// Bytes of each part from op to op of a row: entry i holds while op i is the latest issued.
std::vector<std::array<std::int64_t, kNumAllocatedParts>> alive_bytes(const Schedule& schedule,
                                                                      Row row);

}  // namespace rehearse::sim
