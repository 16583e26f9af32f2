// SPDX-License-Identifier: Apache-2.0
// One compute op under way: its cursor, or the two of an OVERLAP pair, run in turn.
//
// While one half of a pair waits for a collective the other computes (overlap.pair: for every one,
// for those of experts alone, or for none: then the second half follows the first). At most one
// collective of the op is under way, and who asked for the last one lets the other go on: so the
// order in which a pair asks follows from its bodies alone, never from how long anything takes, and
// all ranks that perform the pair meet in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "exec/body/body_runner.h"

namespace rehearse::exec {

class OpTurns {
 public:
  OpTurns(OpCursor first, OpCursor second, PairOverlap overlap)
      : cursors_{std::move(first), std::move(second)}, overlap_(overlap) {}

  // One op, or the halves of a pair; they must live until run() says Done. `beside`: the second
  // half has a track of its own, which begins behind what was issued on the lane's first.
  void start(std::span<const ComputeOp> halves, const StepFacts& facts, bool beside);
  bool started() const { return open_ > 0; }
  // As OpCursor::run.
  Progress run(CollectiveRequest* request);
  void met();
  const std::string& failure() const { return cursors_[now_].failure(); }

 private:
  static constexpr std::size_t kNobody = 2;
  bool hides(Axis axis) const {
    const bool experts =
        axis == Axis::Expert || axis == Axis::ExpertTensor || axis == Axis::ExpertBlock;
    return overlap_ == PairOverlap::Full || (overlap_ == PairOverlap::Experts && experts);
  }
  void give_turn() { now_ = done_[1 - now_] ? now_ : 1 - now_; }

  std::array<OpCursor, 2> cursors_;
  PairOverlap overlap_;
  std::array<bool, 2> done_{true, true};
  std::size_t open_ = 0;         // halves that are not done
  std::size_t now_ = 0;          // whose turn it is
  std::size_t meets_ = kNobody;  // whose collective is under way
  bool asks_ = false;            // who has the turn wants another one
  CollectiveRequest wanted_;
};

}  // namespace rehearse::exec
