// SPDX-License-Identifier: Apache-2.0
// A row's program: its ops, which its passes have made one after another, in the order of their
// places.
//
// Invariant behind it: the draft's last row lists the ops by their place, those of one place as
// they were made; every value is defined before it is used. Values are numbered by the op that
// touches them first, those of one op as they were made, behind what persists; a value that no op
// touches is gone.
#include <algorithm>

#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

// Appends the row's ops to the program, by place: a counting sort.
void list_by_place(const RowDraft& row, std::vector<OpId>& program) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(row.end()) + 2, 0);
  const auto begin = row.ops.begin() + static_cast<std::ptrdiff_t>(row.first_op);
  for (auto op = begin; op != row.ops.end(); ++op) ++next[static_cast<std::size_t>(op->at) + 1];
  auto id = static_cast<std::int32_t>(row.first_op);
  for (std::int32_t before = id; std::int32_t & count : next) count = before += count;
  program.resize(row.ops.size());
  for (auto op = begin; op != row.ops.end(); ++op, ++id) {
    program[static_cast<std::size_t>(next[static_cast<std::size_t>(op->at)]++)] = {id};
  }
}

class Weaver {
 public:
  explicit Weaver(RowDraft& row) : row_(row), draft_(row.draft), number_(row.values.size()) {}

  void run() {
    for (std::int32_t v = 0; row_.values[static_cast<std::size_t>(v)].persistent; ++v) number({v});
    list_by_place(row_, draft_.program);
    for (std::size_t i = row_.first_op; i < draft_.program.size(); ++i) add(draft_.program[i]);
    draft_.row_begin.push_back(static_cast<std::int32_t>(draft_.program.size()));
  }

 private:
  void add(OpId id) {
    DraftOp& op = row_.ops[id.index()];
    if (op.after == kLastCompute) op.after = last_compute_;
    if (op.waits_for == kLastCompute) op.waits_for = last_compute_;
    if (op.waits_for) draft_.barriers.emplace_back(id, op.waits_for);
    if (!holding_.empty() && is_compute(op.op.kind)) {
      for (const OpId reduction : holding_) draft_.barriers.emplace_back(id, reduction);
      holding_.clear();
    }
    if (op.holds_compute) holding_.push_back(id);
    if (op.op.stream == Stream::Compute) last_compute_ = id;
    const std::span<Operand> operands = draft_.operands_of(op);
    for (auto at = operands.begin(); at != operands.end(); ++at) {
      const ValueId& number = number_[at->value.index()];
      if (!number) number_all({at, operands.end()});
      at->value = number;
    }
  }
  // Numbers the operands that an op touches first, in the order in which they were made.
  void number_all(std::span<const Operand> operands) {
    if (operands.size() == 1) return number(operands.front().value);
    fresh_.clear();
    for (const Operand& operand : operands) {
      if (!number_[operand.value.index()]) fresh_.push_back(operand.value);
    }
    if (fresh_.size() > 1) std::sort(fresh_.begin(), fresh_.end());
    for (const ValueId value : fresh_) {
      if (!number_[value.index()]) number(value);  // an OVERLAP's halves may touch the same
    }
  }
  void number(ValueId value) {
    std::vector<Value>& values = draft_.schedule.values;
    number_[value.index()] = {static_cast<std::int32_t>(values.size())};
    values.push_back(row_.of(value));
  }

  RowDraft& row_;
  Draft& draft_;
  std::vector<ValueId>
      number_;  // by value of the row: which it is in the schedule; none: untouched
  OpId last_compute_;
  std::vector<OpId> holding_;   // what the next part waits for
  std::vector<ValueId> fresh_;  // touched first by the op under way
};

}  // namespace

void weave(RowDraft& row) {
  Weaver(row).run();
}

}  // namespace rehearse
