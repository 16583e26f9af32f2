// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/caching_allocator.h"

#include <algorithm>
#include <cassert>

namespace rehearse::sim {
namespace {

// Address space of one expandable segment; only distances inside a segment matter.
constexpr std::int64_t kExpandableSpace = CachingAllocator::kLargest;
// [B] Where addresses of other segments end.
constexpr std::int64_t kAddresses = std::int64_t{1} << 62;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t CachingAllocator::round_size(std::int64_t bytes) {
  static_assert((kMinBlock & (kMinBlock - 1)) == 0);
  return bytes < kMinBlock ? kMinBlock : (bytes + kMinBlock - 1) & ~(kMinBlock - 1);
}

std::int64_t CachingAllocator::segment_size(std::int64_t rounded) {
  if (rounded <= kSmallSize) return kSmallSegment;
  if (rounded < kMinLargeAlloc) return kLargeSegment;
  return round_up(rounded, kLargeRound);
}

CachingAllocator::CachingAllocator(const AllocatorOptions& options) : options_(options) {
  for (std::size_t i = 0; i < pools_.size(); ++i) pools_[i].small = i % 2 == 0;
}

CachingAllocator::Handle CachingAllocator::allocate(std::int64_t bytes, int stream) {
  if (bytes == 0) return kEmpty;
  if (bytes > kLargest || (unused_.size() < 2 && blocks_.size() + 2 > kMostBlocks)) {
    return kOutOfMemory;
  }
  const std::int64_t size = round_size(bytes);
  const auto pool_index = static_cast<std::uint8_t>(2 * stream + (size <= kSmallSize ? 0 : 1));
  Pool& pool = pools_[pool_index];

  const FreeList::Place place = best_fit(pool, size);
  const bool cached = pool.free.has(place);
  std::int32_t found = cached ? block_of(pool.free.at(place)) : new_segment(pool_index, size);
  if (found < 0 && options_.retries) {
    ++retries_;
    empty_cache();
    found = new_segment(pool_index, size);
  }
  if (found < 0) return kOutOfMemory;

  const std::int64_t rest = at(found).size - size;
  const bool splits =
      pool.small || options_.expandable_segments ? rest >= kMinBlock : rest > kSmallSize;
  if (splits) {
    const std::int32_t tail = split(found, size);
    if (cached) {
      at(tail).place = static_cast<std::uint32_t>(pool.free.replace(place, entry_of(tail)));
    } else {
      insert_free(tail);
    }
  } else if (cached) {
    pool.free.erase(place);
  }
  Block& block = at(found);
  block.state = State::Used;
  allocated_ += block.size;
  return found;
}

void CachingAllocator::free(Handle handle) {
  if (handle < 0) return;
  assert(at(handle).state == State::Used);
  allocated_ -= at(handle).size;
  return_to_pool(handle);
}

void CachingAllocator::free_when_finished(Handle handle) {
  if (handle < 0) return;
  assert(at(handle).state == State::Used);
  allocated_ -= at(handle).size;
  at(handle).state = State::Pending;
  pending_.push_back(handle);
}

void CachingAllocator::finish(Handle handle) {
  const auto found = std::find(pending_.begin(), pending_.end(), handle);
  if (handle < 0 || found == pending_.end()) return;  // a retry has waited for it already
  pending_.erase(found);
  return_to_pool(handle);
}

void CachingAllocator::empty_cache() {
  for (const std::int32_t block : pending_) return_to_pool(block);
  pending_.clear();
  for (Pool& pool : pools_) {
    const std::vector<Entry> entries = pool.free.all();
    for (const Entry entry : entries) {
      const std::int32_t candidate = block_of(entry);
      if (options_.expandable_segments) {
        unmap(candidate);
      } else if (at(candidate).previous < 0 && at(candidate).next < 0) {
        release_block(candidate);
      }
    }
  }
}

std::vector<CachingAllocator::View> CachingAllocator::blocks() const {
  std::vector<bool> unused(blocks_.size(), false);
  for (const std::int32_t block : unused_) unused[static_cast<std::size_t>(block)] = true;
  std::vector<View> views;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (unused[i]) continue;
    const Block& block = blocks_[i];
    views.push_back({.address = block.address,
                     .size = block.size,
                     .segment = block.segment,
                     .free = block.state == State::Free,
                     .mapped = block.state != State::Unmapped,
                     .small = pools_[block.pool].small,
                     .stream = block.pool / 2});
  }
  std::sort(views.begin(), views.end(),
            [](const View& a, const View& b) { return a.address < b.address; });
  return views;
}

inline std::int32_t CachingAllocator::new_block() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size()) - 1;
  }
  const std::int32_t index = unused_.back();
  unused_.pop_back();
  return index;
}
std::int32_t CachingAllocator::new_block(const Block& block) {
  const std::int32_t index = new_block();
  at(index) = block;
  return index;
}

inline void CachingAllocator::insert_free(std::int32_t block) {
  at(block).place = static_cast<std::uint32_t>(pools_[at(block).pool].free.insert(entry_of(block)));
}

void CachingAllocator::erase_free(std::int32_t block) {
  FreeList& free = pools_[at(block).pool].free;
  free.erase(free.place_of(entry_of(block), at(block).place));
}

// By the upper halves alone: they hold the size, and what of the address lies beside it.
inline FreeList::Place CachingAllocator::first_of(const FreeList& free, std::int64_t size) {
  constexpr int kBeside = kAddressBits + kIndexBits - 64;
  return free.first_of(static_cast<std::uint64_t>(size / kMinBlock) << kBeside);
}

// The smallest free block of at least `size`, the lowest address among equals. With expandable
// segments a block counts as large as it could grow (torch: get_free_block).
inline FreeList::Place CachingAllocator::best_fit(const Pool& pool, std::int64_t size) const {
  const FreeList& free = pool.free;
  FreeList::Place found = first_of(free, size);
  if (!free.has(found) || !options_.expandable_segments) return found;
  const auto could_grow_to = [&](FreeList::Place place) {
    const Block& block = at(block_of(free.at(place)));
    const bool grows = block.next >= 0 && at(block.next).state == State::Unmapped;
    return block.size + (grows ? at(block.next).size : 0);
  };
  for (FreeList::Place next = free.next(found);
       free.has(next) && could_grow_to(next) < could_grow_to(found); next = free.next(next)) {
    found = next;
  }
  return found;
}

inline std::int32_t CachingAllocator::split(std::int32_t block, std::int64_t size) {
  const std::int32_t tail = new_block();
  Block &front = at(block), &rest = at(tail);
  rest.address = front.address + size;
  rest.size = front.size - size;
  rest.segment = front.segment;
  rest.previous = block;
  rest.next = front.next;
  rest.pool = front.pool;
  rest.state = front.state;
  if (rest.next >= 0) at(rest.next).previous = tail;
  front.next = tail;
  front.size = size;
  return tail;
}

inline void CachingAllocator::absorb(std::int32_t block, std::int32_t neighbour) {
  Block& own = at(block);
  const Block& gone = at(neighbour);
  own.size += gone.size;
  if (gone.next == block) {
    own.address = gone.address;
    own.previous = gone.previous;
    if (own.previous >= 0) at(own.previous).next = block;
  } else {
    own.next = gone.next;
    if (own.next >= 0) at(own.next).previous = block;
  }
  unused_.push_back(neighbour);
}

std::int32_t CachingAllocator::new_segment(std::uint8_t pool, std::int64_t size) {
  if (options_.expandable_segments) return expand(pool, size);
  const std::int64_t bytes = segment_size(size);
  if (options_.capacity >= 0 && reserved_ + bytes > options_.capacity) {
    refused_ = reserved_ + bytes;
    return -1;
  }
  if (next_address_ > kAddresses - bytes) return -1;
  const std::int64_t address = next_address_;
  next_address_ += bytes;
  grow(bytes);
  return new_block({.address = address, .size = bytes, .segment = address, .pool = pool});
}

// Maps memory at the lowest address of the pool's segment where `size` fits, next to a free block
// if there is one (torch: try_allocate_expandable_block).
std::int32_t CachingAllocator::expand(std::uint8_t pool_index, std::int64_t size) {
  Pool& pool = pools_[pool_index];
  const auto has_room = [&](std::int32_t block) {
    std::int64_t bytes = 0;
    for (; bytes < size && block >= 0; block = at(block).next) {
      if (at(block).state != State::Free && at(block).state != State::Unmapped) break;
      bytes += at(block).size;
    }
    return bytes >= size;
  };
  if (!pool.opened) {
    pool.opened = true;
    const std::int64_t base = kExpandableSpace * (1 + pool_index);
    pool.unmapped.push_back(new_block({.address = base,
                                       .size = kExpandableSpace,
                                       .segment = base,
                                       .pool = pool_index,
                                       .state = State::Unmapped}));
  }
  std::int32_t candidate = -1;
  for (const std::int32_t unmapped : pool.unmapped) {
    const std::int32_t before = at(unmapped).previous;
    const std::int32_t first = before >= 0 && at(before).state == State::Free ? before : unmapped;
    if (!has_room(first)) continue;
    candidate = first;
    break;
  }
  if (candidate < 0) return -1;
  if (at(candidate).state == State::Unmapped &&
      !map(candidate, std::min(size, at(candidate).size))) {
    return -1;
  }
  while (at(candidate).size < size) {
    const std::int32_t next = at(candidate).next;
    if (!map(next, std::min(size - at(candidate).size, at(next).size))) return -1;
    candidate = next;  // it has absorbed the free block before it
  }
  erase_free(candidate);
  return candidate;
}

bool CachingAllocator::map(std::int32_t block, std::int64_t size) {
  Pool& pool = pools_[at(block).pool];
  const std::int64_t bytes = round_up(size, pool.granule());
  if (options_.capacity >= 0 && reserved_ + bytes > options_.capacity) {
    refused_ = reserved_ + bytes;
    return false;
  }
  pool.unmapped.erase(std::find(pool.unmapped.begin(), pool.unmapped.end(), block));
  at(block).state = State::Free;
  if (bytes < at(block).size) {
    const std::int32_t tail = split(block, bytes);
    at(tail).state = State::Unmapped;
    pool.unmapped.push_back(tail);
    std::sort(pool.unmapped.begin(), pool.unmapped.end(),
              [this](std::int32_t a, std::int32_t b) { return at(a).address < at(b).address; });
  }
  block = merge(block, at(block).previous);
  block = merge(block, at(block).next);
  insert_free(block);
  grow(bytes);
  return true;
}

// Gives back the whole granules inside a free block; what is left of it stays cached.
void CachingAllocator::unmap(std::int32_t block) {
  Pool& pool = pools_[at(block).pool];
  const std::int64_t granule = pool.granule(), base = at(block).segment;
  const std::int64_t begin = base + round_up(at(block).address - base, granule);
  const std::int64_t end = base + (at(block).address + at(block).size - base) / granule * granule;
  if (begin >= end) return;
  erase_free(block);
  if (end < at(block).address + at(block).size) insert_free(split(block, end - at(block).address));
  if (begin > at(block).address) {
    const std::int32_t front = block;
    block = split(block, begin - at(block).address);
    insert_free(front);
  }
  const std::int64_t bytes = at(block).size;
  at(block).state = State::Unmapped;
  block = merge(block, at(block).previous);
  block = merge(block, at(block).next);
  pool.unmapped.push_back(block);
  std::sort(pool.unmapped.begin(), pool.unmapped.end(),
            [this](std::int32_t a, std::int32_t b) { return at(a).address < at(b).address; });
  reserved_ -= bytes;
}

void CachingAllocator::release_block(std::int32_t block) {
  erase_free(block);
  reserved_ -= at(block).size;
  unused_.push_back(block);
}

// Joined with free neighbours; one of their entries becomes its own.
void CachingAllocator::return_to_pool(std::int32_t block) {
  FreeList& free = pools_[at(block).pool].free;
  at(block).state = State::Free;
  const auto is_free = [this](std::int32_t b) { return b >= 0 && at(b).state == State::Free; };
  const std::int32_t before = at(block).previous, after = at(block).next;
  if (is_free(before) && is_free(after)) erase_free(before);
  if (!is_free(before) && !is_free(after)) {
    insert_free(block);
    return;
  }
  const std::int32_t joined = is_free(after) ? after : before;
  const FreeList::Place place = free.place_of(entry_of(joined), at(joined).place);
  if (is_free(before)) absorb(block, before);
  if (is_free(after)) absorb(block, after);
  at(block).place = static_cast<std::uint32_t>(free.replace(place, entry_of(block)));
}

// Joins `block`, which is in no list, with a neighbour of equal state; the result is in no list.
std::int32_t CachingAllocator::merge(std::int32_t block, std::int32_t neighbour) {
  if (neighbour < 0 || at(neighbour).state != at(block).state) return block;
  if (at(block).state == State::Free) {
    erase_free(neighbour);
  } else {
    std::vector<std::int32_t>& unmapped = pools_[at(block).pool].unmapped;
    unmapped.erase(std::find(unmapped.begin(), unmapped.end(), neighbour));
  }
  absorb(block, neighbour);
  return block;
}

void CachingAllocator::grow(std::int64_t bytes) {
  reserved_ += bytes;
  mapped_ += bytes;
  max_reserved_ = std::max(max_reserved_, reserved_);
}

}  // namespace rehearse::sim
