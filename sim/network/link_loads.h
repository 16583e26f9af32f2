// SPDX-License-Identifier: Apache-2.0
// Private to topology*.cc: loads on links while they are being added up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/network/topology.h"

namespace rehearse::sim {

// What a row's ranks put on the links of one level, per byte: one entry per instance and block (of
// a torus: and link, numbered from node to node). Sparse, because a row touches few of the blocks
// of a large machine.
struct Network::Loads {
  struct Entry {
    std::int32_t block = 0;
    double ring = 0, pairwise = 0;
    std::int32_t own = 0, all = 0;  // ranks of the row, and of all rows of its position
    double next = 0;
  };
  std::vector<Entry> entries;

  // Sums the entries of each block; afterwards blocks are ascending and there once.
  void merge() {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.block < b.block; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (kept > 0 && entries[kept - 1].block == entries[i].block) {
        entries[kept - 1].ring += entries[i].ring;
        entries[kept - 1].pairwise += entries[i].pairwise;
        entries[kept - 1].own += entries[i].own;
        entries[kept - 1].all += entries[i].all;
        entries[kept - 1].next += entries[i].next;
      } else {
        entries[kept++] = entries[i];
      }
    }
    entries.resize(kept);
  }
  // The larger of the two on each block. REQUIRES: both merged.
  void take_larger(const Loads& other) {
    for (const Entry& theirs : other.entries) {
      const auto mine = std::ranges::lower_bound(entries, theirs.block, {}, &Entry::block);
      if (mine == entries.end() || mine->block != theirs.block) {
        entries.insert(mine, theirs);
      } else {
        mine->ring = std::max(mine->ring, theirs.ring);
        mine->pairwise = std::max(mine->pairwise, theirs.pairwise);
        mine->own += theirs.own;
        mine->all += theirs.all;
      }
    }
  }
};

}  // namespace rehearse::sim
