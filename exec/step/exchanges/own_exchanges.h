// SPDX-License-Identifier: Apache-2.0
// What the exchanges of a file's own groups move: numbers that say whose and which part they are,
// so that who holds what can be read from memory before and after.
//
// Member r of a group brings its letter: a, b, c ... An array that is cut into a part for every
// member is written part by part, a0 a1 a2; sums over all members are a sigma with the part's
// number.
#pragma once

#include <string>
#include <vector>

#include "exec/step/rank_state.h"

namespace rehearse::exec {

// What a rank held for one exchange, before it and after the last step. Empty: nothing.
struct HeldExchange {
  std::string name;  // "0SCATTER[all]"
  std::int32_t rank = 0;
  std::string before, after;
  bool operator==(const HeldExchange&) const = default;
};

// Writes what every rank here brings. REQUIRES: arenas are allocated.
void bring_exchanges(const LocalRanks& local);
// By rank, each in the order of its program. Groups of more than 16 ranks are left out: their sums
// do not tell their members.
std::vector<HeldExchange> held_exchanges(const LocalRanks& local);

}  // namespace rehearse::exec
