// SPDX-License-Identifier: Apache-2.0
// A row's ops, which its passes have made one after another, into the row's program.
//
// Invariant behind it: the draft's last row lists the ops by their place, those of one place as
// they were made; every value is defined before it is used. Values are numbered by the op that
// touches them first, those of one op as they were made, behind what persists; a value that no op
// touches is gone.
#include <algorithm>

#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

// Ops by place: a counting sort.
std::vector<std::int32_t> by_place(const RowDraft& row) {
  std::vector<std::int32_t> begin(static_cast<std::size_t>(row.end()) + 2, 0);
  for (const RowOp& op : row.ops) ++begin[static_cast<std::size_t>(op.at) + 1];
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<std::int32_t> sorted(row.ops.size());
  for (std::size_t i = 0; i < row.ops.size(); ++i) {
    sorted[static_cast<std::size_t>(begin[static_cast<std::size_t>(row.ops[i].at)]++)] =
        static_cast<std::int32_t>(i);
  }
  return sorted;
}

class Weaver {
 public:
  explicit Weaver(RowDraft& row)
      : row_(row), draft_(row.draft), op_(row.ops.size()), value_(row.values.size()) {}

  void run() {
    for (std::int32_t v = 0; row_.values[static_cast<std::size_t>(v)].persistent; ++v) number({v});
    for (const std::int32_t i : by_place(row_)) add({i});
    draft_.row_begin.push_back(static_cast<std::int32_t>(draft_.ops.size()));
  }

 private:
  void add(OpId id) {
    const RowOp& from = row_.ops[id.index()];
    DraftOp& made =
        draft_.ops.emplace_back(DraftOp{from.op, from.duration, woven(from.after), from.tie});
    const OpId here = op_[id.index()] = {static_cast<std::int32_t>(draft_.ops.size()) - 1};
    wait(here, woven(from.waits_for));
    if (is_compute(from.op.kind)) {
      for (const OpId reduction : holding_) wait(here, reduction);
      holding_.clear();
    }
    if (from.holds_compute) holding_.push_back(here);
    if (from.op.stream == Stream::Compute) last_compute_ = here;
    const std::span<const Operand> operands = row_.operands_of(id);
    for (const Operand& operand : operands) {
      const ValueId& value = value_[operand.value.index()];
      if (!value) operands.size() == 1 ? number(operand.value) : number_all(operands);
      draft_.operands.push_back({.value = value, .access = operand.access});
    }
    made.operand_end = static_cast<std::int32_t>(draft_.operands.size());
  }
  // Those that no op before has touched, as they were made.
  void number_all(std::span<const Operand> operands) {
    fresh_.clear();
    for (const Operand& operand : operands) {
      if (!value_[operand.value.index()]) fresh_.push_back(operand.value);
    }
    if (fresh_.size() > 1) std::sort(fresh_.begin(), fresh_.end());
    for (const ValueId value : fresh_) {
      if (!value_[value.index()]) number(value);  // an OVERLAP's halves may touch the same
    }
  }
  void wait(OpId op, OpId before) {
    if (before) draft_.barriers.emplace_back(op, before);
  }
  void number(ValueId value) {
    std::vector<Value>& values = draft_.schedule.values;
    value_[value.index()] = {static_cast<std::int32_t>(values.size())};
    values.push_back(row_.of(value));
  }
  OpId woven(OpId id) const {
    return id == kLastCompute ? last_compute_ : id ? op_[id.index()] : id;
  }

  RowDraft& row_;
  Draft& draft_;
  std::vector<OpId> op_;        // by op of the row: which it is in the draft
  std::vector<ValueId> value_;  // by value of the row: likewise; none: not touched yet
  OpId last_compute_;
  std::vector<OpId> holding_;   // what the next part waits for
  std::vector<ValueId> fresh_;  // touched first by the op under way
};

}  // namespace

void weave(RowDraft& row) {
  Weaver(row).run();
}

}  // namespace rehearse
