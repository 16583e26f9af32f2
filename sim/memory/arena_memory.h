// SPDX-License-Identifier: Apache-2.0
// Memory of our own executor: read off the arena plan that the schedule carries.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "schedules/trace/trace.h"
#include "sim/memory/memory.h"

namespace rehearse::sim {

// Which of the report's parts a value counts to: index into kAllocatedParts.
inline constexpr std::string_view kAllocatedParts[] = {"parameters",  "gradients", "optimizer",
                                                       "activations", "buffers",   "workspace"};
inline constexpr std::size_t kNumAllocatedParts = 6;
std::size_t part_of(const Value& value);

// Bytes of each part from op to op of a row: entry i holds while op i is the latest issued.
std::vector<std::array<std::int64_t, kNumAllocatedParts>> alive_bytes(const Schedule& schedule,
                                                                      RankClass row);

// The trace's memory curves: what is alive by parts, from op to op, at the times when the ops were
// issued. REQUIRES: `trace` is of `schedule`, which has an arena, or of what it unfolds to; start
// has one entry per op of the trace.
void add_arena_memory(Trace& trace, const Schedule& schedule, std::span<const Nanoseconds> start);

}  // namespace rehearse::sim
