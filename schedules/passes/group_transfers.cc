// SPDX-License-Identifier: Apache-2.0
// Which transfers are one exchange (ncclGroupStart): all that two rows send each other between the
// same two compute ops of the one and the same two of the other. Of 1F1B these are the steady
// rounds of Megatron-LM, send_forward_recv_backward and send_backward_recv_forward
// (NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py, d98e8a64).
//
// Why grouping cannot hang: an exchange waits for the ops before its gap in both rows, and those
// behind it wait for it. Each of the latter follows one of the former in its own row, and the other
// through what it takes in. So no compute op follows another that it did not follow before.
#include <array>
#include <map>

#include "schedules/passes/draft.h"

namespace rehearse {

void group_transfers(Draft& draft) {
  if (draft.plan.transfers != TransferForm::Grouped || !draft.plan.overlap_pipeline) return;
  struct End {
    std::int32_t row = -1, gap = -1;
  };
  std::vector<std::array<End, 2>> ends(draft.carried.size());  // by match: of SEND, of RECV
  for (std::size_t row = 0; row + 1 < draft.row_begin.size(); ++row) {
    for (const OpId id : draft.program_of(row)) {
      const DraftOp& made = draft.ops[id.index()];
      if (made.gap < 0) continue;
      ends[made.op.match.index()][made.op.kind == OpKind::Send ? 0 : 1] = {
          static_cast<std::int32_t>(row), made.gap};
    }
  }
  // By the lower row and its gap, the upper row and its gap: matches.
  std::map<std::array<std::int32_t, 4>, std::vector<std::size_t>> exchanges;
  for (std::size_t match = 0; match < ends.size(); ++match) {
    auto [a, b] = ends[match];
    if (a.row < 0) continue;
    if (a.row > b.row) std::swap(a, b);
    exchanges[{a.row, a.gap, b.row, b.gap}].push_back(match);
  }
  draft.exchange_of.assign(draft.carried.size(), -1);
  for (const auto& [where, matches] : exchanges) {
    if (matches.size() < 2) continue;
    for (const std::size_t match : matches) draft.exchange_of[match] = draft.num_exchanges;
    ++draft.num_exchanges;
  }
}

}  // namespace rehearse
