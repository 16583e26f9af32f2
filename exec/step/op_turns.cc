// SPDX-License-Identifier: Apache-2.0
#include "exec/step/op_turns.h"

namespace rehearse::exec {

void OpTurns::start(std::span<const ComputeOp> halves, const StepFacts& facts, bool beside) {
  for (std::size_t half = 0; half < halves.size(); ++half) {
    cursors_[half].start(halves[half], facts, beside && half == 1 ? Track::Second : Track::Main,
                         beside);
  }
  done_ = {false, halves.size() < 2};
  open_ = halves.size();
  now_ = 0;
  meets_ = kNobody;
  asks_ = false;
}

Progress OpTurns::run(CollectiveRequest* request) {
  while (open_ > 0) {
    if (!asks_) {
      const Progress progress = cursors_[now_].run(&wanted_);
      if (progress == Progress::Done) {
        done_[now_] = true;
        --open_;
        give_turn();
        continue;
      }
      if (progress != Progress::Collective) return progress;
      asks_ = true;
    }
    if (meets_ != kNobody) return Progress::Waits;
    *request = wanted_;
    asks_ = false;
    meets_ = now_;
    cursors_[now_].hands_on();
    if (hides(wanted_.axis)) give_turn();
    return Progress::Collective;
  }
  return Progress::Done;
}

void OpTurns::met() {
  cursors_[meets_].met();
  meets_ = kNobody;
}

}  // namespace rehearse::exec
