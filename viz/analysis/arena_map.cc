// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/arena_map.h"

#include <algorithm>
#include <tuple>

#include "schedules/trace/memory_part.h"

namespace rehearse::viz {

std::vector<ArenaBlock> arena_map(const Trace& trace, RankClass row) {
  std::vector<ArenaBlock> blocks;
  for (std::size_t i = 0; i < trace.values.size(); ++i) {
    const TraceValue& value = trace.values[i];
    if (value.row != row || value.home != Home::Device || value.offset < 0 || value.bytes <= 0)
      continue;
    const std::int64_t begin =
        value.define ? trace.start_ns[value.define.index()] : trace.begin.value;
    // What is held for an op's place in the program is used no more after its last use.
    const OpId last = value.last_use ? value.last_use : value.hold_until;
    const std::int64_t end = value.hold_until ? trace.end_ns[last.index()] : trace.end.value;
    blocks.push_back({.value = static_cast<std::int32_t>(i),
                      .begin = begin,
                      .end = std::max(begin, end),
                      .offset = value.offset,
                      .bytes = value.bytes,
                      .part = memory_part(value.kind, value.persistent != 0)});
  }
  std::ranges::sort(blocks, {}, [](const ArenaBlock& block) {
    return std::tuple(block.offset, block.begin, block.value);
  });
  return blocks;
}

std::int64_t arena_bytes(const std::vector<ArenaBlock>& blocks) {
  std::int64_t end = 0;
  for (const ArenaBlock& block : blocks) end = std::max(end, block.offset + block.bytes);
  return end;
}

}  // namespace rehearse::viz
