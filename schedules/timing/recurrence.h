// SPDX-License-Identifier: Apache-2.0
// What a simulation did between two moments with equal states it does again and again.
//
// An order that is made op by op, by rules that know how many micro-batches there are only once the
// last has begun, is such a simulation. Where its state comes again b micro-batches later, all
// numbers and times relative to the moment, the order of b more is the same with what lies between
// the two moments once more (docs/steady_state.md).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rehearse {

// How an order grows.
struct Repeats {
  std::int32_t microbatches = 0;  // b, of all directions; 0: nobody knows
  std::int32_t least = 0;         // it holds from so many micro-batches on
  std::int64_t later = 0;         // its end is so much later for each b, in the units of its rules
};

// Finds a state that came before. It keeps one state, and takes another in its place after 1, 2, 4,
// 8 ... others (Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980): so it
// finds the shortest period, at most three times as late as it first shows.
template <class Moment>
class Recurrence {
 public:
  // The moment of the kept state, where `state`, of the moment `here`, is equal to it.
  std::optional<Moment> seen(std::vector<std::int64_t> state, Moment here) {
    if (kept_ && state == state_) return kept_;
    if (++others_ < until_) return {};
    others_ = 0;
    until_ *= 2;
    state_ = std::move(state);
    kept_ = std::move(here);
    return {};
  }

 private:
  std::vector<std::int64_t> state_;
  std::optional<Moment> kept_;
  std::int64_t others_ = 0, until_ = 1;
};

}  // namespace rehearse
