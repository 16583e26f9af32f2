// SPDX-License-Identifier: Apache-2.0
// The row's ops, each divided where `cut` says. OVERLAP pairs stay whole, and so do the ops that
// belong to them.
//
// Invariant behind it: the parts of an op cover its stage, each segment once, a forward's ascending
// and a backward's descending; an op and its backward are cut alike.
#include <algorithm>

#include "schedules/ir/stage_index.h"
#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

class Splitter {
 public:
  explicit Splitter(RowDraft& row)
      : row_(row),
        stages_(row.s.segments.size()),
        first_(stages_),
        last_(stages_),
        whole_(row.slots, false),
        lists_(row.slots, -1),
        list_at_(stages_, {-1, -1, -1, -1}) {}

  void run() {
    row_.cuts.assign(row_.slots, {});
    row_.cut_lists.push_back({0});
    const auto program = row_.draft.order.program(RankClass{row_.position.value});
    for (const Op& op : program) {
      if (!is_compute(op.kind)) continue;
      for (const Op& leaf : work_of(row_.draft.order, op)) find_ends(leaf, op.kind);
    }
    row_.parts.reserve(program.size());
    row_.step_begin.reserve(program.size() + 1);
    for (const Op& op : program) {
      if (!is_compute(op.kind)) {
        row_.exchanges.push_back({op, row_.parts.size()});
        continue;
      }
      const bool pair = op.kind == OpKind::Overlap;
      if (pair) row_.step_begin.push_back(row_.parts.size());
      for (const Op& leaf : work_of(row_.draft.order, op)) split(leaf, pair);
    }
    row_.step_begin.push_back(row_.parts.size());
  }

 private:
  void find_ends(const Op& op, OpKind within) {
    if (op.kind == OpKind::Backward || op.kind == OpKind::WeightGradient) {
      last_[op.stage.index()] = op.microbatch;
    } else if (op.kind == OpKind::Forward && !first_[op.stage.index()]) {
      first_[op.stage.index()] = op.microbatch;
    }
    if (within == OpKind::Overlap) whole_[row_.slot(op)] = true;
  }

  void split(const Op& op, bool pair) {
    const std::size_t slot = row_.slot(op);
    std::int32_t& list = lists_[slot];
    if (list < 0) {
      list = whole_[slot] ? 0 : list_of(op);
      row_.cuts[slot] = row_.cut_lists[static_cast<std::size_t>(list)];
    }
    const auto count = static_cast<std::uint32_t>(row_.cuts[slot].size());
    const std::uint32_t works = first_work(op, static_cast<std::size_t>(list));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!pair) row_.step_begin.push_back(row_.parts.size());
      const bool ascends = op.kind == OpKind::Forward || op.kind == OpKind::Recompute;
      const std::uint32_t index = ascends ? i : count - 1 - i;
      Part& part = row_.parts.emplace_back(Part{op, index, count, works + index});
      if (pair || count == 1) continue;
      part.op.segment_begin = static_cast<std::int16_t>(row_.begin_of(part));
      part.op.segment_end = static_cast<std::int16_t>(row_.end_of(part));
    }
  }

  // Where the op is cut, as a place in cut_lists: the same for all micro-batches between the first
  // and the last.
  std::int32_t list_of(const Op& op) {
    const AtEnds ends{op.microbatch == first_[op.stage.index()],
                      op.microbatch == last_[op.stage.index()]};
    std::int32_t& list = list_at_[op.stage.index()][(ends.first ? 2U : 0U) + (ends.last ? 1U : 0U)];
    if (list < 0) {
      const std::vector<std::int16_t> cuts = cut(row_.draft, row_.position, op.stage, ends);
      auto at = std::find(row_.cut_lists.begin(), row_.cut_lists.end(), cuts);
      if (at == row_.cut_lists.end()) at = row_.cut_lists.insert(at, cuts);
      list = static_cast<std::int32_t>(at - row_.cut_lists.begin());
    }
    return list;
  }

  // Works of an op's parts lie one after another, by the parts' index.
  std::uint32_t first_work(const Op& op, std::size_t list) {
    const std::size_t behind = row_.draft.placed.of(op) ? kDirections : 0;  // an R
    const std::size_t key = ((list * stages_ + op.stage.index()) * 2 * kDirections + behind +
                             static_cast<std::size_t>(direction_of(op.kind))) *
                                static_cast<std::size_t>(row_.slices) +
                            RowDraft::slice_of(op);
    if (works_at_.size() <= key) works_at_.resize(key + 1, kNone);
    if (works_at_[key] == kNone) {
      works_at_[key] = static_cast<std::uint32_t>(row_.works.size());
      const auto count = static_cast<std::uint32_t>(row_.cut_lists[list].size());
      for (std::uint32_t i = 0; i < count; ++i) {
        row_.works.push_back(part_work(row_, {.op = op, .index = i, .count = count}));
      }
    }
    return works_at_[key];
  }

  static constexpr std::uint32_t kNone = ~0U;
  RowDraft& row_;
  std::size_t stages_;
  std::vector<Microbatch> first_, last_;              // by stage: forward, backward
  std::vector<bool> whole_;                           // by slot: in an OVERLAP
  std::vector<std::int32_t> lists_;                   // by slot, into cut_lists
  std::vector<std::array<std::int32_t, 4>> list_at_;  // by stage and AtEnds; -1: not made
  std::vector<std::uint32_t> works_at_;  // by (cut list, stage, R or not, direction, slice)
};

}  // namespace

void split_parts(RowDraft& row) {
  Splitter(row).run();
}

}  // namespace rehearse
