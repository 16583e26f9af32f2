// SPDX-License-Identifier: Apache-2.0
// What lies on a row's ranks from step to step: parameters, under ZeRO-3 a shard of them, and the
// optimizer's state of what they update.
//
// Invariant behind it: every bucket of the row's position has one persistent value of parameters,
// but on ranks that one GPU sends them to (DataParallel); the rows that update it, one of state.
// They are the row's first values, in backward order.
#include "schedules/passes/row_draft.h"
#include "schedules/scenario/memory/optimizer_state.h"

namespace rehearse {

void hold_parameters(RowDraft& row) {
  const Draft& draft = row.draft;
  const Precision& precision = row.plan.precision;
  const std::size_t n = row.s.buckets.size();
  const Home away = home_of_offloaded(row.plan);
  row.parameter.assign(n, {});
  row.state.assign(n, {});
  for (std::size_t i = n; i-- > 0;) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (!row.here(id) || !row.owner) continue;
    const std::int64_t element =
        row.plan.gathers_units() ? precision.parameters : draft.layout.shape.element;
    row.parameter[i] =
        draft.shards(id)
            ? row.bucket_value(ValueKind::ParameterShard, id, element * draft.owned(id))
            : row.bucket_value(ValueKind::FullParameter, id, element * row.bucket(id).padded);
    row.of(row.parameter[i]).persistent = true;
    if (row.plan.offload.parameters) row.of(row.parameter[i]).home = away;
    row.state[i] =
        row.bucket_value(ValueKind::OptimizerState, id, state_bytes(row.plan, draft.owned(id)));
    row.of(row.state[i]).persistent = true;
    if (row.plan.offload.optimizer) row.of(row.state[i]).home = away;
  }
}

}  // namespace rehearse
