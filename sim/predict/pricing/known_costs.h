// SPDX-License-Identifier: Apache-2.0
// Which ops of a schedule cost the same: a key for what tells costs apart, and where its cost
// stands.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rehearse::sim {

// What tells costs apart. Compute: kind, stage and part; communication: kind, bytes, row, peer.
using CostKey = std::array<std::int64_t, 8>;

// Key to cost, by open addressing: every op of a schedule is looked up once.
class KnownCosts {
 public:
  // Where the key's cost is written; -1: not known yet. Valid until the next call.
  std::int32_t& operator[](const CostKey& key) {
    if (2 * used_ >= entries_.size()) grow();
    Entry& entry = find(key);
    if (!entry.taken) {
      entry = {.key = key, .cost = -1, .taken = true};
      ++used_;
    }
    return entry.cost;
  }

 private:
  struct Entry {
    CostKey key{};
    std::int32_t cost = -1;
    bool taken = false;
  };
  Entry& find(const CostKey& key) {
    std::uint64_t hash = 0;
    for (const std::int64_t part : key) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    std::size_t at = hash & (entries_.size() - 1);
    while (entries_[at].taken && entries_[at].key != key) at = (at + 1) & (entries_.size() - 1);
    return entries_[at];
  }
  void grow() {
    std::vector<Entry> old(std::max<std::size_t>(2 * entries_.size(), 256));
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.taken) find(entry.key) = entry;
    }
  }

  std::vector<Entry> entries_;  // a power of two of them
  std::size_t used_ = 0;
};

}  // namespace rehearse::sim
