// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/free_list.h"

#include <utility>

namespace rehearse::sim {

std::vector<FreeList::Entry> FreeList::all() const {
  std::vector<Entry> all = entries_;
  for (const std::vector<Entry>& chunk : chunks_) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

FreeList::Place FreeList::insert_rarely(Entry entry) {
  if (chunks_.empty()) {
    if (entries_.empty()) return insert_here(entry);
    for (auto rest = entries_.begin(); rest != entries_.end();) {
      const auto end = rest + std::min<std::ptrdiff_t>(kChunk / 2, entries_.end() - rest);
      chunks_.emplace_back(rest, end);
      last_.push_back(chunks_.back().back());
      rest = end;
    }
    entries_.clear();
  }
  // Behind all: into the last chunk.
  const std::size_t number = std::min(chunk_for(entry), chunks_.size() - 1);
  std::vector<Entry>& chunk = chunks_[number];
  const auto at = chunk.insert(std::ranges::lower_bound(chunk, entry), entry);
  const auto index = static_cast<std::size_t>(at - chunk.begin());
  last_[number] = chunk.back();
  if (chunk.size() <= kChunk) return place_in(number, index);
  const auto half = chunk.begin() + static_cast<std::ptrdiff_t>(kChunk / 2);
  std::vector<Entry> upper(half, chunk.end());
  chunk.erase(half, chunk.end());
  last_[number] = chunk.back();
  last_.insert(last_.begin() + static_cast<std::ptrdiff_t>(number) + 1, upper.back());
  chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(number) + 1, std::move(upper));
  return index < kChunk / 2 ? place_in(number, index) : place_in(number + 1, index - kChunk / 2);
}

std::size_t FreeList::chunk_for(Entry entry) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(last_, entry) - last_.begin());
}

FreeList::Place FreeList::first_in_chunks(Entry least) const {
  const std::size_t number = chunk_for(least);
  if (number == chunks_.size()) return 0;
  const std::vector<Entry>& chunk = chunks_[number];
  return place_in(number,
                  static_cast<std::size_t>(std::ranges::lower_bound(chunk, least) - chunk.begin()));
}

FreeList::Place FreeList::next_in_chunks(Place place) const {
  const std::size_t number = number_of(place), index = index_of(place) + 1;
  if (index < chunks_[number].size()) return place_in(number, index);
  return number + 1 < chunks_.size() ? place_in(number + 1, 0) : 0;
}

void FreeList::erase_in_chunks(Place place) {
  const std::size_t number = number_of(place);
  std::vector<Entry>& chunk = chunks_[number];
  chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(index_of(place)));
  if (!chunk.empty()) {
    last_[number] = chunk.back();
    return;
  }
  chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(number));
  last_.erase(last_.begin() + static_cast<std::ptrdiff_t>(number));
}

}  // namespace rehearse::sim
