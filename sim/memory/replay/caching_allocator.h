// SPDX-License-Identifier: Apache-2.0
// PyTorch's CUDA caching allocator, literally: same rounding, pools, best fit, splits and retries,
// on numbers instead of device memory. What it reserves beyond what is allocated falls out.
//
// Source of every rule: pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (and CUDAAllocatorConfig
// defaults: no roundup_power2_divisions, no garbage_collection_threshold).
// Deliberately absent: private pools of CUDA graphs, IPC, oversize blocks (max_split_size).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/memory/replay/free_list.h"

namespace rehearse::sim {

struct AllocatorOptions {
  std::int64_t capacity = -1;        // [B] what all segments together may take; -1: unlimited
  bool expandable_segments = false;  // PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  bool retries = true;  // false: what torch would empty its cache for is out of memory here
};

class CachingAllocator {
 public:
  // A live allocation. Negative values are no block.
  using Handle = std::int32_t;
  static constexpr Handle kEmpty = -1;        // zero bytes: torch returns no block
  static constexpr Handle kOutOfMemory = -2;  // even after giving back all that is cached

  static constexpr int kNumStreams = 4;
  static constexpr std::int64_t kMinBlock = 512;          // every size is a multiple of it
  static constexpr std::int64_t kSmallSize = 1 << 20;     // largest allocation of the small pool
  static constexpr std::int64_t kSmallSegment = 2 << 20;  // what the small pool asks the driver for
  static constexpr std::int64_t kLargeSegment = 20 << 20;  // for allocations below kMinLargeAlloc
  static constexpr std::int64_t kMinLargeAlloc = 10 << 20;
  static constexpr std::int64_t kLargeRound = 2 << 20;  // segments of larger allocations
  // [B] No allocation is larger, and an expandable segment's address space is as large: 2^58, 288
  // PB. Sums of what is reserved stay within an integer as long as they stay below 2^62.
  static constexpr std::int64_t kLargest = std::int64_t{1} << 58;

  static std::int64_t round_size(std::int64_t bytes);      // of a block
  static std::int64_t segment_size(std::int64_t rounded);  // asked of the driver for a new block

  explicit CachingAllocator(const AllocatorOptions& options = {});

  // REQUIRES: bytes >= 0, 0 <= stream < kNumStreams. Blocks serve the stream that first got them.
  // More than kLargest, or more in all than addresses reach (2^62) or than 2^25 blocks, is out of
  // memory under any capacity.
  Handle allocate(std::int64_t bytes, int stream = 0);
  // REQUIRES: a handle from allocate() that was not freed; kEmpty and kOutOfMemory are ignored.
  void free(Handle handle);
  // Freed by its owner while another stream may still use it (record_stream): no longer counted as
  // allocated, but not reusable before finish(). A retry after an allocation failure waits for it.
  void free_when_finished(Handle handle);
  void finish(Handle handle);
  void empty_cache();  // gives back every segment of which no part is in use

  std::int64_t allocated() const { return allocated_; }  // [B] memory_allocated()
  std::int64_t reserved() const { return reserved_; }    // [B] memory_reserved()
  std::int64_t max_reserved() const { return max_reserved_; }
  std::int32_t retries() const { return retries_; }  // allocations that needed the cache emptied
  // [B] what all segments together would have taken, when the capacity was last in the way.
  std::int64_t refused() const { return refused_; }
  std::int64_t mapped() const { return mapped_; }  // [B] ever asked of the driver
  std::int64_t block_size(Handle handle) const {   // [B] what the handle counts as allocated
    return handle < 0 ? 0 : blocks_[static_cast<std::size_t>(handle)].size;
  }
  // A picture for tests: blocks in order of address, those of one segment together.
  struct View {
    std::int64_t address = 0, size = 0, segment = 0;  // segment: address of its first byte
    bool free = false, mapped = true, small = false;
    int stream = 0;
  };
  std::vector<View> blocks() const;

 private:
  enum class State : std::uint8_t { Free, Used, Pending, Unmapped };
  struct Block {
    std::int64_t address = 0, size = 0;
    std::int64_t segment = 0;               // address of the segment
    std::int32_t previous = -1, next = -1;  // neighbours in the segment
    std::uint8_t pool = 0;                  // small_, stream: index into pools_
    State state = State::Free;
    std::uint32_t place = 0;  // where it was put into its list; others may have moved it since
  };
  // A free block as one number, in which they are ordered by size, then address (torch's
  // BlockComparatorSize): both in units of kMinBlock, and behind them the block's index.
  using Entry = FreeList::Entry;
  static constexpr int kIndexBits = 25, kAddressBits = 53;  // and 50 of the size
  static constexpr std::size_t kMostBlocks = std::size_t{1} << kIndexBits;
  static std::int32_t block_of(Entry entry) {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(entry) & (kMostBlocks - 1));
  }
  struct Pool {
    bool small = false;
    bool opened = false;  // expandable: the segment is there
    FreeList free;
    std::vector<std::int32_t> unmapped;  // expandable: address space without memory, by address
    std::int64_t granule() const { return small ? kSmallSegment : kLargeSegment; }
  };

  Block& at(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  Entry entry_of(std::int32_t block) const {
    const auto units = [](std::int64_t bytes) {
      return static_cast<std::uint64_t>(bytes) / static_cast<std::uint64_t>(kMinBlock);
    };
    return (Entry{units(at(block).size)} << kAddressBits | units(at(block).address)) << kIndexBits |
           static_cast<std::uint32_t>(block);
  }
  std::int32_t new_block();  // of another's fields, which are to be set
  std::int32_t new_block(const Block& block);
  void insert_free(std::int32_t block);
  void erase_free(std::int32_t block);
  // Place in pool.free; one that it does not have: none fits.
  static FreeList::Place first_of(const FreeList& free, std::int64_t size);
  FreeList::Place best_fit(const Pool& pool, std::int64_t size) const;
  std::int32_t new_segment(std::uint8_t pool, std::int64_t size);
  std::int32_t expand(std::uint8_t pool, std::int64_t size);
  bool map(std::int32_t block, std::int64_t size);
  void unmap(std::int32_t block);
  void release_block(std::int32_t block);
  void return_to_pool(std::int32_t block);
  std::int32_t split(std::int32_t block, std::int64_t size);  // the rest, in no list
  void absorb(std::int32_t block, std::int32_t neighbour);    // which is in no list
  std::int32_t merge(std::int32_t block, std::int32_t neighbour);
  void grow(std::int64_t bytes);

  AllocatorOptions options_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> unused_, pending_;
  std::array<Pool, 2 * kNumStreams> pools_;
  std::int64_t next_address_ = 0;
  std::int64_t allocated_ = 0, reserved_ = 0, max_reserved_ = 0;
  std::int64_t refused_ = 0;
  std::int32_t retries_ = 0;
  std::int64_t mapped_ = 0;
};

}  // namespace rehearse::sim
