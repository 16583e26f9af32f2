// SPDX-License-Identifier: Apache-2.0
// Collectives that a file lists over groups of its own: each on the compute stream, behind what
// stands before it in the file and before what stands behind, on data of its own that lie on the
// ranks from step to step.
//
// Invariant behind it: the row has one op for each that its position lists, in that order; what a
// member brings and gets are values that persist.
#include <algorithm>
#include <utility>

#include "schedules/ir/exchange_parts.h"
#include "schedules/passes/row_draft.h"

namespace rehearse {

void place_exchanges(RowDraft& row) {
  for (const OwnExchange& listed : row.exchanges) {
    const Group& own = row.draft.order.groups[listed.op.group.index()];
    const auto group = std::ranges::find_if(
        row.s.groups, [&](const Group& one) { return one.name() == own.name(); });
    const MatchId match = row.draft.shared_match(Meeting::Own, listed.op.match.value, row.replica);
    const Carried carried = row.draft.order.carried[listed.op.match.index()];
    row.draft.carried[match.index()] = carried;
    Op op = listed.op;
    op.group = {static_cast<std::int32_t>(group - row.s.groups.begin())};
    op.match = match;
    const std::int32_t at =
        listed.parts == 0 ? row.start() : row.at(listed.parts - 1, Phase::Reduce);
    row.add(op, row.draft.estimates.other, at);
    const auto member = std::ranges::find(own.rows, RankClass{row.position.value});
    const auto place = static_cast<std::int32_t>(member - own.rows.begin()) % own.size;
    const ExchangeParts parts = exchange_parts(op.kind, place == op.peer.value);
    for (const auto& [portion, access] :
         {std::pair{parts.brings, Access::Read}, std::pair{parts.gets, Access::Update}}) {
      if (portion == Portion::Nothing) continue;
      const std::int64_t bytes = carried.bytes() / (portion == Portion::Part ? own.size : 1);
      const ValueId value = row.value(ValueKind::Workspace, bytes);
      row.of(value).persistent = true;
      row.operand(value, access);
    }
  }
}

}  // namespace rehearse
