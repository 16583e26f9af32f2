// SPDX-License-Identifier: Apache-2.0
// The list of free blocks, short and long, is what an ordered set is.
#include "sim/memory/replay/free_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

namespace rehearse::sim {
namespace {

using Entry = FreeList::Entry;

// A list that grows far beyond one array and shrinks to nothing, three times: what is found, what
// comes next and what is left are those of the set. Sizes are few, so that most entries differ in
// their lower half alone, as blocks of equal tensors do.
TEST(FreeList, IsAnOrderedSetInOneArrayAndInChunks) {
  std::mt19937_64 random(35);
  FreeList list;
  std::set<Entry> set;
  const auto drawn = [&] { return (Entry{random() % 50} << 64) | (random() % 1'000'000); };
  const auto expect_first = [&](std::uint64_t upper) {
    const auto expected = set.lower_bound(Entry{upper} << 64);
    const FreeList::Place place = list.first_of(upper);
    ASSERT_EQ(list.has(place), expected != set.end());
    if (expected == set.end()) return;
    ASSERT_TRUE(list.at(place) == *expected);
    const FreeList::Place next = list.next(place);
    ASSERT_EQ(list.has(next), std::next(expected) != set.end());
    if (list.has(next)) {
      ASSERT_TRUE(list.at(next) == *std::next(expected));
    }
  };
  for (int round = 0; round < 3; ++round) {
    for (const bool grows : {true, false}) {
      while (grows ? set.size() < 9000 : !set.empty()) {
        const Entry entry = drawn();
        const bool adds = random() % 4 == 0 ? !grows : grows;
        if (adds && !set.contains(entry)) {
          set.insert(entry);
          ASSERT_TRUE(list.at(list.insert(entry)) == entry);
        } else if (!adds && !set.empty()) {
          auto old = set.lower_bound(entry);
          if (old == set.end()) old = set.begin();
          const FreeList::Place place = list.place_of(*old, random() % 3000);
          ASSERT_TRUE(list.at(place) == *old);
          set.erase(old);
          if (random() % 3 == 0 && !set.contains(entry)) {
            set.insert(entry);
            ASSERT_TRUE(list.at(list.replace(place, entry)) == entry);
          } else {
            list.erase(place);
          }
        }
        expect_first(random() % 52);
        if (HasFatalFailure()) return;
      }
      const std::vector<Entry> all = list.all();
      ASSERT_TRUE(std::ranges::equal(all, set));
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
