// SPDX-License-Identifier: Apache-2.0
// Orders of tokens and rows, on an example that can be counted by hand: 8 tokens on each of two
// ranks, four experts, two for each token.
#include "exec/cpu/kernels/routing.h"

#include <gtest/gtest.h>

#include <vector>

namespace rehearse::exec {
namespace {

using Ints = std::vector<std::int32_t>;

// What both ranks' tokens chose; rank 0 has experts 0 and 1.
const Ints kChosen{0, 1, 0, 2, 0, 3, 0, 1, 1, 2, 0, 2, 0, 1, 1, 3,   // of rank 0
                   2, 3, 2, 3, 2, 3, 1, 2, 1, 2, 0, 2, 0, 3, 2, 3};  // of rank 1

struct Visits {
  Ints token = Ints(16), sent = Ints(3), row = Ints(16), weight = Ints(16), begins = Ints(6),
       arrived;
};
Visits visits_of(std::int64_t rank, std::int64_t room, const Ints& chosen = kChosen,
                 std::int64_t slot = 0) {
  Visits v;
  v.arrived.resize(static_cast<std::size_t>(2 * room));
  sort_visits({.ranks = 2,
               .rank = rank,
               .tokens = 8,
               .per_token = 2,
               .per_rank = 2,
               .room = room,
               .slot = slot},
              chosen.data(), v.token.data(), v.sent.data(), v.row.data(), v.weight.data(),
              v.begins.data(), v.arrived.data());
  return v;
}

// Of rank 0's tokens all eight have experts of its own and 1, 2, 4, 5, 7 of the other's; of rank
// 1's the middle four come here.
TEST(Routing, ATokenGoesOnceToEveryRankThatHasExpertsOfIt) {
  const Visits v = visits_of(0, 16);
  EXPECT_EQ(v.sent, (Ints{0, 8, 13}));
  EXPECT_EQ(v.begins, (Ints{0, 8, 13, 0, 4, 12}));
  EXPECT_EQ(Ints(v.token.begin(), v.token.begin() + 13),
            (Ints{0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 4, 5, 7}));
  // Both experts of token 0 are here: one row. Token 1's second is the first that leaves.
  EXPECT_EQ(Ints(v.row.begin(), v.row.begin() + 4), (Ints{0, -1, 1, 8}));
  EXPECT_EQ(Ints(v.weight.begin(), v.weight.begin() + 4), (Ints{0, 1, 2, 17}));
  EXPECT_EQ(Ints(v.arrived.begin() + 16, v.arrived.begin() + 24), (Ints{1, 2, 1, 2, 0, 2, 0, 3}));
  EXPECT_EQ(Ints(v.arrived.begin() + 24, v.arrived.end()), Ints(8, -1));
  EXPECT_EQ(visits_of(1, 16).sent, (Ints{0, 4, 12}));
}

// Token 1 leaves expert 2 out, token 2 both: one row fewer, two rows fewer, and no weights of
// these.
TEST(Routing, WhatIsDroppedGoesNowhere) {
  Ints chosen = kChosen;
  chosen[3] = chosen[4] = chosen[5] = -1;
  const Visits v = visits_of(0, 16, chosen);
  EXPECT_EQ(v.sent, (Ints{0, 7, 10}));
  EXPECT_EQ(Ints(v.row.begin(), v.row.begin() + 6), (Ints{0, -1, 1, -1, -1, -1}));
  EXPECT_EQ(Ints(v.weight.begin(), v.weight.begin() + 6), (Ints{0, 1, 2, -1, -1, -1}));
}

TEST(Routing, WhatThereIsNoRoomForIsCountedAndNotWritten) {
  const Visits v = visits_of(0, 9);
  EXPECT_EQ(v.begins, (Ints{0, 8, 13, 0, 4, 12}));
  EXPECT_EQ(Ints(v.arrived.end() - 2, v.arrived.end()), (Ints{1, 2}));
}

// Slots of seven tokens: rank 0's own eighth finds no place, its five for rank 1 begin at row 7; of
// rank 1's the four that come begin there too. What is counted stays the same.
TEST(Routing, VisitsLieInSlots) {
  const Visits v = visits_of(0, 14, kChosen, 7);
  EXPECT_EQ(v.begins, (Ints{0, 8, 13, 0, 4, 12}));
  EXPECT_EQ(v.sent, (Ints{0, 8, 13}));
  EXPECT_EQ(Ints(v.token.begin(), v.token.begin() + 14),
            (Ints{0, 1, 2, 3, 4, 5, 6, 1, 2, 4, 5, 7, -1, -1}));
  EXPECT_EQ(Ints(v.row.begin(), v.row.begin() + 4), (Ints{0, -1, 1, 7}));
  EXPECT_EQ(Ints(v.row.end() - 2, v.row.end()), (Ints{-1, 11}));
  EXPECT_EQ(Ints(v.weight.end() - 2, v.weight.end()), (Ints{-1, 23}));
  EXPECT_EQ(Ints(v.arrived.begin() + 12, v.arrived.begin() + 22),
            (Ints{0, 1, 1, 2, 1, 2, 0, 2, 0, 3}));
  EXPECT_EQ(Ints(v.arrived.begin() + 22, v.arrived.end()), Ints(6, -1));
}

// Experts 0 and 1 have 15 copies, 2 and 3 have 17; the larger stays where it was larger before.
TEST(Routing, TheMostChoicesOfARankAreCounted) {
  double most = 3;
  const CountShape shape{.experts = 4, .together = 2};
  count_choices(shape, 32, kChosen.data(), &most);
  EXPECT_EQ(most, 17);
  count_choices(shape, 4, kChosen.data(), &most);
  EXPECT_EQ(most, 17);
}

}  // namespace
}  // namespace rehearse::exec
