// SPDX-License-Identifier: Apache-2.0
// Which backwards an R of their own has gone before: those compute nothing again, and read what the
// R has made. It follows from the schedule alone, so that no op has to say it.
#pragma once

#include <algorithm>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse {

class PlacedRecompute {
 public:
  PlacedRecompute() = default;
  explicit PlacedRecompute(const Schedule& schedule)
      : stages_(schedule.placement.stages()),
        microbatches_(schedule.microbatches),
        slices_(std::max(schedule.slices, 1)) {
    for (const Op& op : schedule.ops) {
      if (op.kind != OpKind::Recompute || !holds(op)) continue;
      if (placed_.empty()) placed_.resize(key({stages_}, {0}, 0), false);
      placed_[key(op)] = true;
    }
  }
  bool any() const { return !placed_.empty(); }
  // Whether the op's stage and micro-batch (and slice) have an R.
  bool of(const Op& op) const { return any() && holds(op) && placed_[key(op)]; }

 private:
  bool holds(const Op& op) const {
    return op.stage.value >= 0 && op.stage.value < stages_ && op.microbatch.value >= 0 &&
           op.microbatch.value < microbatches_ && op.slice < slices_;
  }
  std::size_t key(Stage stage, Microbatch microbatch, std::int32_t slice) const {
    return (stage.index() * static_cast<std::size_t>(microbatches_) + microbatch.index()) *
               static_cast<std::size_t>(slices_) +
           static_cast<std::size_t>(slice);
  }
  std::size_t key(const Op& op) const {
    return key(op.stage, op.microbatch, std::max<std::int32_t>(op.slice, 0));
  }

  std::int32_t stages_ = 0, microbatches_ = 0, slices_ = 1;
  std::vector<bool> placed_;  // by (stage, micro-batch, slice); empty: none
};

}  // namespace rehearse
