// SPDX-License-Identifier: Apache-2.0
// The allocator with what every block is for, and the peak with what was alive at it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "schedules/base/units.h"
#include "sim/memory/memory.h"
#include "sim/memory/replay/caching_allocator.h"
#include "sim/memory/replay/memory_parts.h"

namespace rehearse::sim {

// Streams of the allocator: blocks of one never serve another.
enum AllocationStream : int { kComputeStream, kGatherStream, kReduceStream };

using Handle = CachingAllocator::Handle;
inline constexpr Handle kNoBlock = CachingAllocator::kEmpty;

class Ledger {
 public:
  explicit Ledger(const AllocatorOptions& options) : allocator_(options) {}

  // `kind`: whose activations they are, where these are told apart.
  Handle allocate(std::int64_t bytes, MemoryPart part, int stream = kComputeStream,
                  std::uint8_t kind = 0) {
    const std::int64_t mapped = allocator_.mapped();
    const Handle handle = allocator_.allocate(bytes, stream);
    if (allocator_.mapped() != mapped) note_mapping(allocator_.mapped() - mapped);
    if (handle < 0) {
      out_of_memory_ |= handle == CachingAllocator::kOutOfMemory;
      return kNoBlock;
    }
    const auto index = static_cast<std::size_t>(handle);
    if (part_of_.size() <= index) make_room(index);
    part_of_[index] = part;
    bytes_[static_cast<std::size_t>(part)] += allocator_.block_size(handle);
    if (tells_apart_) begin(handle, kind);
    if (watched_) note_change();
    if (allocator_.allocated() > peak_in_steps_) note_peak();  // which is peak_ at most
    return handle;
  }
  void free(Handle& handle) {
    if (handle < 0) return;
    const MemoryPart part = part_of_[static_cast<std::size_t>(handle)];
    bytes_[static_cast<std::size_t>(part)] -= allocator_.block_size(handle);
    if (tells_apart_) end(handle);
    allocator_.free(handle);
    handle = kNoBlock;
    if (watched_) note_change();
  }
  void free(std::vector<Handle>& handles) {
    for (Handle& handle : handles) free(handle);
    handles.clear();
  }

  // Activations are counted by so many kinds, too; 0: they are not.
  void tell_apart(std::size_t kinds) {
    tells_apart_ = kinds > 0;
    kinds_.assign(kinds, 0);
  }
  void take(Handle handle, std::uint8_t kind) {
    if (tells_apart_ && handle >= 0) give(handle, kind);
  }
  const std::vector<std::int64_t>& kinds_at_peak() const { return kinds_at_peak_; }

  // From here on `most()` is the most that was alive at once, by MemoryPart, and `trail()` what was
  // alive now and after each change; before: not kept.
  void watch() {
    watched_ = true;
    most_ = bytes_;
    trail_.assign(1, bytes_);
  }
  const MemoryBytes& most() const { return most_; }
  const std::vector<MemoryBytes>& trail() const { return trail_; }
  const MemoryBytes& now() const { return bytes_; }

  // Begins a step; what is counted is counted of the step that began last. Before the first one
  // the model is being built.
  void begin_step() {
    building_ = false;
    peak_in_steps_ = std::max(peak_in_steps_, allocator_.allocated());
    mapped_.clear();
    retries_before_ = allocator_.retries();
  }
  bool retried() const { return allocator_.retries() != retries_before_; }
  std::int64_t mapped() const {
    std::int64_t bytes = 0;
    for (const Mapping& one : mapped_) bytes += one.bytes;
    return bytes;
  }

  std::int64_t peak_in_steps() const { return peak_in_steps_; }
  bool out_of_memory() const { return out_of_memory_; }
  const CachingAllocator& allocator() const { return allocator_; }
  RankMemory result() const;  // without row, steady state and what lies outside the allocator

  OpId op{};            // what is being replayed
  bool behind = false;  // it stands behind repetitions that were left out

 private:
  CachingAllocator allocator_;
  std::vector<MemoryPart> part_of_;  // per handle
  // What activations are of: kinds per handle, and bytes by kind.
  bool tells_apart_ = false;
  std::vector<std::uint8_t> kind_of_;
  std::vector<std::int64_t> kinds_, kinds_at_peak_;
  static std::int64_t sum(const MemoryBytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }

  // Out of line, being of models alone whose kinds are told apart.
  void begin(Handle handle, std::uint8_t kind);
  void end(Handle handle);
  void give(Handle handle, std::uint8_t kind);
  // Out of line, being rare.
  void note_change();  // what is alive now, and whether it is the most
  void note_mapping(std::int64_t bytes);
  void note_peak();
  void make_room(std::size_t index);  // for the part of the block

  MemoryBytes bytes_{}, at_peak_{}, most_{};
  std::vector<MemoryBytes> trail_;
  bool watched_ = false;
  std::int64_t peak_ = 0, peak_in_steps_ = 0;
  OpId peak_op_{};
  bool peak_behind_ = false;
  bool building_ = true, peak_at_building_ = false;
  bool out_of_memory_ = false;
  std::vector<Mapping> mapped_;  // of this step, by op
  std::int32_t retries_before_ = 0;
};

}  // namespace rehearse::sim
