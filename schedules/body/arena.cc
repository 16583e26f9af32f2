// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/arena.h"

#include <algorithm>
#include <numeric>

#include "schedules/body/sizes.h"

namespace rehearse {
namespace {

std::int64_t peak_of(std::span<const ArenaBlock> blocks) {
  std::vector<std::pair<std::int32_t, std::int64_t>> changes;  // (time, bytes)
  changes.reserve(2 * blocks.size());
  for (const ArenaBlock& block : blocks) {
    changes.emplace_back(block.begin, aligned(block.bytes));
    changes.emplace_back(block.end + 1, -aligned(block.bytes));
  }
  std::sort(changes.begin(), changes.end());  // at one time, frees (negative) come first
  std::int64_t live = 0, peak = 0;
  for (const auto& [time, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

}  // namespace

ArenaPlan plan_arena(std::span<const ArenaBlock> blocks) {
  ArenaPlan plan;
  plan.offset.assign(blocks.size(), 0);
  std::vector<std::int32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t i) -> const ArenaBlock& {
    return blocks[static_cast<std::size_t>(i)];
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (at(a).bytes != at(b).bytes) return at(a).bytes > at(b).bytes;
    return at(a).begin < at(b).begin;
  });
  // Placed blocks by offset, so that one scan over those alive together finds the gaps.
  struct Placed {
    std::int64_t offset, end;
    std::int32_t first, last;
  };
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  for (const std::int32_t index : order) {
    const ArenaBlock& block = at(index);
    const std::int64_t bytes = aligned(block.bytes);
    std::int64_t end = 0, offset = -1, smallest = 0;  // end of what is alive below; the best gap
    for (const Placed& other : placed) {
      if (other.last < block.begin || other.first > block.end) continue;
      const std::int64_t gap = other.offset - end;
      if (gap >= bytes && (offset < 0 || gap < smallest)) {
        offset = end;
        smallest = gap;
      }
      end = std::max(end, other.end);
    }
    if (offset < 0) offset = end;
    const Placed here{offset, offset + bytes, block.begin, block.end};
    const auto after = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [](std::int64_t value, const Placed& other) { return value < other.offset; });
    placed.insert(after, here);
    plan.offset[static_cast<std::size_t>(index)] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
  }
  plan.live_peak = peak_of(blocks);
  return plan;
}

}  // namespace rehearse
