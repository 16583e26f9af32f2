// SPDX-License-Identifier: Apache-2.0
// The memory of one row of a plan under a framework: its replay, and what lies outside the
// allocator. A plan's memory is that of all its rows (memory.h); who only asks whether a plan fits
// may begin with the fullest.
#pragma once

#include <optional>

#include "sim/cluster/cluster.h"
#include "sim/memory/memory.h"
#include "sim/memory/replay/memory_replay.h"

namespace rehearse::sim {

// Where the cache would be emptied to fit, with it emptied.
RankMemory row_memory(const ReplaySetup& setup, const Cluster& cluster, RankClass row);
// The same; none: surely not what is needed.
std::optional<RankMemory> row_memory_within(const ReplaySetup& setup, const Cluster& cluster,
                                            RankClass row, const MemoryNeed& need);

// An earlier row that does the same: it holds the same stages and runs the same ops on them, other
// micro-batches perhaps. -1: none. So the two ends of a bidirectional pipeline are.
std::int32_t equal_row(const ReplaySetup& setup, RankClass row);

}  // namespace rehearse::sim
