// SPDX-License-Identifier: Apache-2.0
// Where the ops of a (stage, micro-batch, slice) stand: one dense table instead of searches.
//
// What an op depends on follows from its stage and micro-batch (docs/ir.md, "Dependencies"), so
// passes, validator and proofs all look ops up by them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse {

// The work of one op of a row: itself, or the two children of an OVERLAP.
inline std::span<const Op> work_of(const Schedule& schedule, const Op& op) {
  if (op.kind != OpKind::Overlap || op.child < 0) return {&op, 1};
  return std::span{schedule.children}.subspan(static_cast<std::size_t>(op.child), 2);
}

constexpr bool is_transfer(OpKind kind) {
  return kind == OpKind::Send || kind == OpKind::Recv;
}

// Ops by index in Schedule::ops, -1 where there is none. First and last in program order: they
// differ where the op is cut into parts. A child of an OVERLAP counts as the OVERLAP op.
struct StageOps {
  std::int32_t forward_first = -1, forward_last = -1;
  std::int32_t backward_first = -1, backward_last = -1;  // B or I
  std::int32_t weight_first = -1;
  // Transfers that this stage issues: what it hands on, and what it is handed.
  std::int32_t send_activation = -1, recv_activation = -1;
  std::int32_t send_gradient = -1, recv_gradient = -1;
};

class StageIndex {
 public:
  // Ops whose stage, micro-batch or slice the schedule does not have are left out. Among several
  // whole ops of one kind first and last are kept, of several transfers the first.
  explicit StageIndex(const Schedule& schedule);

  std::int32_t stages() const { return stages_; }
  std::int32_t slices() const { return slices_; }
  // Rows of one data class exchange transfers among themselves; classes do not (folding).
  std::int32_t classes() const { return classes_; }
  std::int32_t class_of(RankClass row) const {
    return class_of_row_.empty() ? 0 : class_of_row_[row.index()];
  }

  // Keys count data class, stage, micro-batch, slice, the last fastest.
  std::size_t size() const { return table_.size(); }
  std::size_t key(std::int32_t data_class, Stage stage, Microbatch microbatch,
                  std::int32_t slice) const {
    return ((static_cast<std::size_t>(data_class) * static_cast<std::size_t>(stages_) +
             stage.index()) *
                static_cast<std::size_t>(microbatches_) +
            microbatch.index()) *
               static_cast<std::size_t>(slices_) +
           static_cast<std::size_t>(slice < 0 ? 0 : slice);
  }
  std::size_t key(std::int32_t data_class, const Op& op) const {
    return key(data_class, op.stage, op.microbatch, op.slice);
  }
  std::size_t stage_stride() const {  // from a key to the same one of the next stage
    return static_cast<std::size_t>(microbatches_) * static_cast<std::size_t>(slices_);
  }
  bool holds(const Op& op) const {
    return op.stage.value >= 0 && op.stage.value < stages_ && op.microbatch.value >= 0 &&
           op.microbatch.value < microbatches_ && op.slice < slices_ &&
           (slices_ == 1 || op.slice >= 0);
  }
  const StageOps& at(std::size_t key) const { return table_[key]; }
  Stage stage_of(std::size_t key) const {
    return {static_cast<std::int32_t>(key / stage_stride() % static_cast<std::size_t>(stages_))};
  }
  Microbatch microbatch_of(std::size_t key) const {
    return {static_cast<std::int32_t>(key / static_cast<std::size_t>(slices_) %
                                      static_cast<std::size_t>(microbatches_))};
  }
  std::int8_t slice_of(std::size_t key) const {  // as in Op: -1 where nothing is sliced
    return slices_ == 1 ? std::int8_t{-1}
                        : static_cast<std::int8_t>(key % static_cast<std::size_t>(slices_));
  }

  // The op that makes what a compute op takes over from a neighbouring stage; -1 where it takes
  // nothing (F of stage 0, backward of the last stage, W, R) or nobody makes it.
  std::int32_t producer(std::int32_t data_class, const Op& work) const;
  // The transfer that brings it, as listed by the row of `work`; -1 where there is none.
  std::int32_t arrival(std::int32_t data_class, const Op& work) const;
  // The op whose result a SEND carries (F, or B or I, of its stage); -1 where there is none.
  std::int32_t source(std::int32_t data_class, const Op& send) const;
  // The other end of a transfer; -1 where there is none.
  std::int32_t partner(std::int32_t data_class, const Op& transfer) const;
  // The first transfer of its stage, micro-batch and payload: itself, unless it is a double.
  std::int32_t first_of(std::int32_t data_class, const Op& transfer) const;
  // Whether any op is of the kind (children of an OVERLAP do not count).
  bool has(OpKind kind) const { return has_[static_cast<std::size_t>(kind)]; }

 private:
  std::int32_t stages_, microbatches_, slices_, classes_ = 1;
  std::vector<std::int32_t> class_of_row_;
  std::vector<StageOps> table_;
  std::array<bool, kNumOpKinds> has_{};
};

}  // namespace rehearse
