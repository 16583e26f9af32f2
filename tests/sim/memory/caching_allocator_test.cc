// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace rehearse::sim {
namespace {

using Handle = CachingAllocator::Handle;
constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

// Every rule of round_size and get_allocation_size, on both sides of each border.
TEST(CachingAllocator, RoundsBlocksTo512BytesAndSegmentsByClass) {
  EXPECT_EQ(CachingAllocator::round_size(1), 512);
  EXPECT_EQ(CachingAllocator::round_size(512), 512);
  EXPECT_EQ(CachingAllocator::round_size(513), 1024);
  EXPECT_EQ(CachingAllocator::segment_size(512), 2 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(kMiB), 2 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(10 * kMiB + 512), 12 * kMiB);
  EXPECT_EQ(CachingAllocator::segment_size(11 * kMiB), 12 * kMiB);
}

TEST(CachingAllocator, GivesNoBlockForZeroBytes) {
  CachingAllocator allocator;
  const Handle nothing = allocator.allocate(0);
  EXPECT_EQ(nothing, CachingAllocator::kEmpty);
  allocator.free(nothing);
  EXPECT_EQ(allocator.max_reserved(), 0);
}

// 1,000 bytes and 1 MiB share one 2 MiB segment; a second MiB does not fit in what is left.
TEST(CachingAllocator, PacksSmallBlocksIntoTwoMiBSegments) {
  CachingAllocator allocator;
  allocator.allocate(1000);
  EXPECT_EQ(allocator.allocated(), 1024);
  EXPECT_EQ(allocator.reserved(), 2 * kMiB);
  allocator.allocate(kMiB);
  EXPECT_EQ(allocator.reserved(), 2 * kMiB);
  allocator.allocate(kMiB);
  EXPECT_EQ(allocator.reserved(), 4 * kMiB);
  EXPECT_EQ(allocator.allocated(), 1024 + 2 * kMiB);
}

// A large block is split only if more than 1 MiB would remain: 11 MiB of a 12 MiB segment keep the
// whole of it, and memory_allocated() counts all 12.
TEST(CachingAllocator, CountsTheUnsplitRestOfALargeBlockAsAllocated) {
  CachingAllocator allocator;
  const Handle block = allocator.allocate(11 * kMiB);
  EXPECT_EQ(allocator.block_size(block), 12 * kMiB);
  EXPECT_EQ(allocator.allocated(), 12 * kMiB);
  allocator.free(block);
  const Handle smaller = allocator.allocate(11 * kMiB - 512);  // 1 MiB + 512 would remain: split
  EXPECT_EQ(allocator.allocated(), 11 * kMiB - 512);
  EXPECT_EQ(allocator.reserved(), 12 * kMiB);
  allocator.free(smaller);
}

// A 20 MiB segment gives 4 + 4 + 4 + 4; the last 4 MiB serve 3 MiB whole, since exactly 1 MiB
// would remain.
TEST(CachingAllocator, SplitsTwentyMiBSegmentsUntilOneMiBWouldRemain) {
  CachingAllocator allocator;
  for (int i = 0; i < 4; ++i) allocator.allocate(4 * kMiB);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  allocator.allocate(3 * kMiB);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  EXPECT_EQ(allocator.allocated(), 20 * kMiB);
  allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.reserved(), 40 * kMiB);
}

// Holes of 30 and 14 MiB: 12 MiB go into the hole of 14, though the other has a lower address.
TEST(CachingAllocator, TakesTheSmallestHoleThatFits) {
  CachingAllocator allocator;
  const Handle wide = allocator.allocate(30 * kMiB);
  const Handle narrow = allocator.allocate(14 * kMiB);
  allocator.free(wide);
  allocator.free(narrow);
  const Handle block = allocator.allocate(12 * kMiB);
  const auto views = allocator.blocks();
  ASSERT_EQ(views.size(), 3u);  // 30 free, 12 used, 2 free
  EXPECT_TRUE(views[0].free);
  EXPECT_EQ(views[0].size, 30 * kMiB);
  EXPECT_FALSE(views[1].free);
  EXPECT_EQ(views[1].size, allocator.block_size(block));
  EXPECT_EQ(views[2].size, 2 * kMiB);
}

TEST(CachingAllocator, JoinsFreedNeighboursOfOneSegmentOnly) {
  CachingAllocator allocator;
  std::vector<Handle> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(6 * kMiB));  // 6 + 6 + 6 (+ 2)
  const Handle other = allocator.allocate(40 * kMiB);
  allocator.free(blocks[0]);
  allocator.free(blocks[2]);
  allocator.free(blocks[1]);
  allocator.free(other);
  const auto views = allocator.blocks();
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].size, 20 * kMiB);
  EXPECT_EQ(views[1].size, 40 * kMiB);
}

TEST(CachingAllocator, KeepsBlocksOfStreamsApart) {
  CachingAllocator allocator;
  allocator.free(allocator.allocate(32 * kMiB, 0));
  allocator.allocate(32 * kMiB, 1);
  EXPECT_EQ(allocator.reserved(), 64 * kMiB);
  allocator.allocate(32 * kMiB, 0);
  EXPECT_EQ(allocator.reserved(), 64 * kMiB);
}

TEST(CachingAllocator, HoldsABlockThatAnotherStreamStillUses) {
  CachingAllocator allocator;
  const Handle sent = allocator.allocate(32 * kMiB);
  allocator.free_when_finished(sent);
  EXPECT_EQ(allocator.allocated(), 0);
  const Handle next = allocator.allocate(32 * kMiB);
  EXPECT_EQ(allocator.reserved(), 64 * kMiB);
  allocator.finish(sent);
  allocator.free(next);
  allocator.allocate(32 * kMiB);
  allocator.allocate(32 * kMiB);
  EXPECT_EQ(allocator.reserved(), 64 * kMiB);
}

// 60 of 100 MiB are cached in two segments, neither large enough for 50; they are given back.
TEST(CachingAllocator, EmptiesTheCacheBeforeItFails) {
  CachingAllocator allocator({.capacity = 100 * kMiB});
  const Handle first = allocator.allocate(40 * kMiB), second = allocator.allocate(20 * kMiB);
  const Handle third = allocator.allocate(30 * kMiB);
  allocator.free(first);
  allocator.free(second);
  EXPECT_GE(allocator.allocate(50 * kMiB), 0);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.reserved(), 80 * kMiB);
  EXPECT_EQ(allocator.max_reserved(), 90 * kMiB);
  EXPECT_EQ(allocator.allocate(30 * kMiB), CachingAllocator::kOutOfMemory);
  allocator.free(third);
}

// A split segment cannot be given back: 20 MiB of it are in use, 60 are lost to a request of 70.
TEST(CachingAllocator, FailsWhenFragmentsAreLargeEnoughOnlyTogether) {
  CachingAllocator allocator({.capacity = 100 * kMiB});
  const Handle whole = allocator.allocate(80 * kMiB);
  allocator.free(whole);
  allocator.allocate(20 * kMiB);
  EXPECT_EQ(allocator.allocate(70 * kMiB), CachingAllocator::kOutOfMemory);
}

// Expandable: the cached 60 MiB grow to 100 instead of a second segment; what is cached can be
// unmapped in granules of 20 MiB although part of the segment is in use.
TEST(CachingAllocator, GrowsAndShrinksExpandableSegments) {
  CachingAllocator allocator({.capacity = 200 * kMiB, .expandable_segments = true});
  const Handle first = allocator.allocate(60 * kMiB);
  allocator.free(first);
  const Handle grown = allocator.allocate(100 * kMiB);
  EXPECT_EQ(allocator.reserved(), 100 * kMiB);
  const Handle second = allocator.allocate(50 * kMiB);
  EXPECT_EQ(allocator.reserved(), 160 * kMiB);  // 50 rounded up to 60: three granules
  allocator.free(grown);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 60 * kMiB);
  EXPECT_GE(allocator.allocate(110 * kMiB), 0);  // 100 MiB of address space are not enough for it
  EXPECT_EQ(allocator.reserved(), 160 * kMiB);   // 10 cached at the end of the segment + 100
  allocator.free(second);
}

struct Live {
  Handle handle;
  std::int64_t bytes;
};

void expect_sound(const CachingAllocator& allocator) {
  std::int64_t used = 0, mapped = 0;
  const auto views = allocator.blocks();
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].mapped) mapped += views[i].size;
    if (!views[i].free && views[i].mapped) used += views[i].size;
    ASSERT_GT(views[i].size, 0);
    if (i == 0) continue;
    const auto& before = views[i - 1];
    ASSERT_LE(before.address + before.size, views[i].address) << "blocks overlap";
    if (before.segment == views[i].segment) {
      ASSERT_EQ(before.address + before.size, views[i].address) << "a gap inside a segment";
      ASSERT_FALSE(before.free && views[i].free) << "free neighbours were not joined";
    }
  }
  ASSERT_EQ(used, allocator.allocated());
  ASSERT_EQ(mapped, allocator.reserved());
  ASSERT_LE(allocator.allocated(), allocator.reserved());
  ASSERT_LE(allocator.reserved(), allocator.max_reserved());
}

// Random work on two streams: no overlap, neighbours joined, counters equal to the blocks.
TEST(CachingAllocator, StaysSoundUnderRandomWork) {
  for (const bool expandable : {false, true}) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
      CachingAllocator allocator({.capacity = 600 * kMiB, .expandable_segments = expandable});
      std::vector<Live> live;
      for (int step = 0; step < 400; ++step) {
        if (live.empty() || below(5) < 3) {
          const std::int64_t bytes = below(2) == 0 ? 1 + below(3 * kMiB / 2) : below(64 * kMiB);
          const Handle handle = allocator.allocate(bytes, static_cast<int>(below(2)));
          if (handle == CachingAllocator::kOutOfMemory) {
            ASSERT_GT(allocator.reserved() + bytes + 20 * kMiB, 600 * kMiB);
          } else if (handle >= 0) {
            ASSERT_GE(allocator.block_size(handle), bytes);
            live.push_back({handle, bytes});
          }
        } else {
          const auto at = static_cast<std::size_t>(below(static_cast<std::uint32_t>(live.size())));
          allocator.free(live[at].handle);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        }
        ASSERT_LE(allocator.reserved(), 600 * kMiB);
        expect_sound(allocator);
      }
      for (const Live& block : live) allocator.free(block.handle);
      ASSERT_EQ(allocator.allocated(), 0);
      allocator.empty_cache();
      ASSERT_EQ(allocator.reserved(), 0);
    }
  }
}

// Blocks of more than 2^37 bytes at addresses beyond 2^45, 8 times 64 TiB: ordered by size and
// found again, as those of every day are. Beyond 2^58, and where addresses end, there is no block
// under any capacity.
TEST(CachingAllocator, CountsMoreThanAnyGpuHas) {
  constexpr std::int64_t kTiB = kMiB * kMiB;
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator({.expandable_segments = expandable});
    std::vector<Handle> blocks;
    for (std::int64_t i = 1; i <= 8; ++i) blocks.push_back(allocator.allocate(64 * i * kTiB));
    EXPECT_EQ(allocator.allocated(), 36 * 64 * kTiB);
    // Not neighbours: the second and the fifth stay two free blocks.
    allocator.free(blocks[4]);
    allocator.free(blocks[1]);
    EXPECT_EQ(allocator.allocated(), 29 * 64 * kTiB);
    const std::int64_t reserved = allocator.reserved();
    const Handle fits_second = allocator.allocate(128 * kTiB),
                 fits_fifth = allocator.allocate(129 * kTiB);
    EXPECT_EQ(allocator.block_size(fits_second), 128 * kTiB);
    EXPECT_GE(allocator.block_size(fits_fifth), 129 * kTiB);
    EXPECT_EQ(allocator.reserved(), reserved);

    EXPECT_EQ(allocator.allocate(CachingAllocator::kLargest + 1), CachingAllocator::kOutOfMemory);
    Handle last = 0;
    std::int64_t most = 0;
    while (last >= 0 && most < 100) {
      last = allocator.allocate(CachingAllocator::kLargest);
      ++most;
    }
    EXPECT_EQ(last, CachingAllocator::kOutOfMemory);
    EXPECT_GT(allocator.allocated(), 0);
    EXPECT_LE(allocator.reserved(), std::int64_t{1} << 62);
  }
}

}  // namespace
}  // namespace rehearse::sim
