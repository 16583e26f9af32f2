// SPDX-License-Identifier: Apache-2.0
// The free blocks of one pool of the caching allocator, as numbers in ascending order.
//
// Most lists have a few dozen entries and lie in one array, where inserting moves what is behind.
// Where all micro-batches are alive at once (GPipe) a list has hundreds of thousands, and moving
// them would take a time that grows with the square of the micro-batches: beyond kMost entries
// they lie in chunks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rehearse::sim {

class FreeList {
 public:
  // Ordered by its upper bits first: what the caller puts there (a block's size).
  __extension__ using Entry = unsigned __int128;
  // Of an entry, until the list changes.
  using Place = std::size_t;

  bool has(Place place) const { return place < entries_.size() || (place & kChunked) != 0; }
  // REQUIRES: has(place), as below.
  Entry at(Place place) const {
    return (place & kChunked) != 0 ? chunk_of(place)[index_of(place)] : entries_[place];
  }
  Place next(Place place) const {
    return (place & kChunked) != 0 ? next_in_chunks(place) : place + 1;
  }
  std::vector<Entry> all() const;  // ascending

  // The first whose upper 64 bits are at least these; none: has() is false of it.
  Place first_of(std::uint64_t upper) const {
    if (entries_.empty()) return chunks_.empty() ? 0 : first_in_chunks(Entry{upper} << 64);
    return first_not([=](Entry other) { return static_cast<std::uint64_t>(other >> 64) < upper; },
                     0, entries_.size());
  }
  // Of an entry that is in the list, near `guess` as a rule.
  Place place_of(Entry entry, Place guess) const {
    const std::size_t size = entries_.size();
    if (guess < size && entries_[guess] == entry) return guess;
    if (guess > 0 && guess <= size && entries_[guess - 1] == entry) return guess - 1;
    if (guess + 1 < size && entries_[guess + 1] == entry) return guess + 1;
    return size == 0 ? first_in_chunks(entry) : lower_bound(entry, 0, size);
  }

  Place insert(Entry entry) {                                           // its place
    if (entries_.size() - 1 >= kMost - 1) return insert_rarely(entry);  // none, or too many
    return insert_here(entry);
  }
  void erase(Place place) {
    if ((place & kChunked) != 0) return erase_in_chunks(place);
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(place));
  }
  // Moves what is between; its new place.
  Place replace(Place place, Entry entry) {
    if ((place & kChunked) != 0) {
      erase_in_chunks(place);
      return insert(entry);
    }
    const auto at = entries_.begin() + static_cast<std::ptrdiff_t>(place);
    std::size_t to = place;  // often: what is left of the largest block is the largest
    if (place > 0 && entry < entries_[place - 1]) {
      to = lower_bound(entry, 0, place);
      std::move_backward(entries_.begin() + static_cast<std::ptrdiff_t>(to), at, at + 1);
    } else if (place + 1 < entries_.size() && entries_[place + 1] < entry) {
      to = lower_bound(entry, place + 1, entries_.size()) - 1;  // its own place is given up
      std::move(at + 1, entries_.begin() + static_cast<std::ptrdiff_t>(to + 1), at);
    }
    entries_[to] = entry;
    return to;
  }

 private:
  static constexpr std::size_t kMost = 1024;  // entries of the array
  static constexpr std::size_t kChunk = 256;  // of a chunk
  // A place in a chunk: this bit, the chunk's number, the index in it.
  static constexpr Place kChunked = Place{1} << 63;
  static constexpr int kIndexBits = 12;
  static std::size_t index_of(Place place) { return place & ((Place{1} << kIndexBits) - 1); }
  static std::size_t number_of(Place place) { return (place & ~kChunked) >> kIndexBits; }
  static Place place_in(std::size_t chunk, std::size_t index) {
    return kChunked | chunk << kIndexBits | index;
  }
  const std::vector<Entry>& chunk_of(Place place) const { return chunks_[number_of(place)]; }

  // Without branches: the searches are short, many, and unpredictable, and a conditional operator
  // would be compiled to a branch. After the first look 2^k - 1 entries are left, whatever their
  // number was (Shar's search; Knuth, The Art of Computer Programming, volume 3, 6.2.1).
  template <class Before>
  std::size_t first_not(const Before& before, std::size_t first, std::size_t last) const {
    if (first == last) return first;
    const Entry* base = entries_.data() + first;
    std::size_t step = std::bit_floor(last - first);
    const auto mask = [&] { return -static_cast<std::size_t>(before(base[step - 1])); };
    base += (last - first - step + 1) & mask();
    while ((step /= 2) > 0) base += step & mask();
    return static_cast<std::size_t>(base - entries_.data());
  }
  std::size_t lower_bound(Entry entry, std::size_t first, std::size_t last) const {
    return first_not([=](Entry other) { return other < entry; }, first, last);
  }
  Place insert_here(Entry entry) {
    const std::size_t place = lower_bound(entry, 0, entries_.size());
    entries_.push_back(entry);
    if (place + 1 < entries_.size()) {
      std::move_backward(entries_.data() + place, entries_.data() + entries_.size() - 1,
                         entries_.data() + entries_.size());
      entries_[place] = entry;
    }
    return place;
  }

  // Out of line, being rare.
  Place insert_rarely(Entry entry);
  Place first_in_chunks(Entry least) const;  // that is not less; 0: none, which no array has then
  Place next_in_chunks(Place place) const;
  void erase_in_chunks(Place place);
  std::size_t chunk_for(Entry entry) const;  // the first that ends with no less; their number: none

  std::vector<Entry> entries_;              // ascending; empty where there are chunks
  std::vector<std::vector<Entry>> chunks_;  // ascending, none empty
  std::vector<Entry> last_;                 // per chunk
};

}  // namespace rehearse::sim
