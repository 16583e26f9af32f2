// SPDX-License-Identifier: Apache-2.0
// The arena of our executor as a map: which address holds which value, and when.
#pragma once

#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

struct ArenaBlock {
  std::int32_t value = 0;           // index into Trace::values
  std::int64_t begin = 0, end = 0;  // [ns]: its first op's begin, its last use's end
  std::int64_t offset = 0, bytes = 0;
  std::size_t part = 0;  // of Trace::memory_parts
};
// Device values of a row that have a place, in order of their address, then of time. Empty where
// the trace plans no addresses: a framework's allocator.
std::vector<ArenaBlock> arena_map(const Trace& trace, RankClass row);
std::int64_t arena_bytes(const std::vector<ArenaBlock>& blocks);  // the end of the last block

}  // namespace rehearse::viz
