// SPDX-License-Identifier: Apache-2.0
// The gradients that a row's parts add to.
//
// A bucket's gradient is one value that all its contributions add to, where it is reduced once per
// step, else one per micro-batch; it is ready behind the last of them.
#pragma once

#include <vector>

#include "schedules/passes/row_draft.h"

namespace rehearse {

class SummedGradients {
 public:
  explicit SummedGradients(RowDraft& row);  // REQUIRES: behind split_parts
  // To the op added last: what the part adds to and is there already.
  void add(const Part& part) {
    new_.clear();
    if (!row_.work(part).adds.empty()) add_each(part);
  }
  // To the op added last: what its parts are the first to add to. They stand behind its outputs.
  void write_new() {
    for (const ValueId id : new_) row_.operand(id, Access::Write);
  }
  // Lists in row.ready what the part was the last to add to, in forward order. `at`: the place of
  // its op among the parts.
  void finish(const Part& part, std::size_t at) {
    if (!row_.work(part).adds.empty()) list_ready(part, at);
  }

 private:
  void add_each(const Part& part);
  void list_ready(const Part& part, std::size_t at);
  static std::size_t number(BucketId about, int use) {
    return about.index() * 2 + static_cast<std::size_t>(use);
  }
  ValueId& gradient_of(BucketId about, int use) { return gradient_[number(about, use)]; }
  // Contributions still to come: in the step, or of the micro-batch.
  std::int32_t& open(const Part& part, BucketId about, int use) {
    const std::size_t at = number(about, use);
    if (!each_) return open_[at];
    return open_[at * static_cast<std::size_t>(row_.units) +
                 (each(about) ? row_.unit(part.op) : 0)];
  }

  // Experts may have no replicas where the rest has some.
  bool each(BucketId about) const { return each_ && row_.draft.reduces_each_microbatch(about); }

  RowDraft& row_;
  bool each_;                       // some gradients are reduced per micro-batch
  std::vector<ValueId> gradient_;   // by bucket * 2 + use: that which is being added to
  std::vector<std::int32_t> open_;  // likewise, and by micro-batch where these are reduced each
  std::vector<ValueId> new_;        // that the part under way is the first to write
};

}  // namespace rehearse
