// SPDX-License-Identifier: Apache-2.0
// What the ops of a draft take, by who can price them: the schedule as it is before its order is
// known, and the prices in place of the estimates.
#include <algorithm>
#include <limits>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// A layer's forward, by the forward whose segments take least on the mean: one without a head.
std::int64_t shortest_segment(const Draft& draft) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (const DraftOp& made : draft.ops) {
    if (made.op.kind != OpKind::Forward) continue;
    const auto all =
        static_cast<std::int64_t>(draft.schedule.segments[made.op.stage.index()].size());
    const std::int64_t end = made.op.segment_end < 0 ? all : made.op.segment_end;
    shortest =
        std::min(shortest, made.duration / std::max<std::int64_t>(1, end - made.op.segment_begin));
  }
  return shortest == std::numeric_limits<std::int64_t>::max() ? draft.layer_forward : shortest;
}

}  // namespace

void fill_columns(Draft& draft, std::span<const OpId> in_order) {
  Schedule& s = draft.schedule;
  s.row_begin = draft.row_begin;
  s.ops.resize(in_order.size());
  s.operands.resize(draft.operands.size());
  s.operand_begin.resize(in_order.size() + 1);
  Operand* end = s.operands.data();
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    const DraftOp& made = draft.ops[in_order[i].index()];
    s.ops[i] = made.op;
    for (const Operand& operand : draft.operands_of(made)) *end++ = operand;
    s.operand_begin[i + 1] = static_cast<std::int32_t>(end - s.operands.data());
  }
}

Result<> price_draft(Draft& draft, const PriceOps& price) {
  Schedule& s = draft.schedule;
  fill_columns(draft, draft.program);
  s.carried.swap(draft.carried);
  const Result<std::vector<std::int64_t>> priced = price(s, draft.layout);
  s.carried.swap(draft.carried);
  if (!priced) return priced.error();
  if (priced.value().empty()) return {};
  for (std::size_t i = 0; i < draft.program.size(); ++i) {
    draft.ops[draft.program[i].index()].duration = std::max<std::int64_t>(1, priced.value()[i]);
  }
  draft.layer_forward = std::max<std::int64_t>(1, shortest_segment(draft));
  return {};
}

}  // namespace rehearse
