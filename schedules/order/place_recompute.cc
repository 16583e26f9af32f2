// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/place_recompute.h"

#include <vector>

#include "schedules/ir/stage_index.h"

namespace rehearse {
namespace {

Op recompute_of(const Op& backward) {
  Op op = compute_op(OpKind::Recompute, backward.stage, backward.microbatch);
  op.slice = backward.slice;
  return op;
}

// The order with an R before those of its ops that are marked.
Schedule with_recompute(const Schedule& order, const std::vector<bool>& marked) {
  Schedule made = order;
  made.ops.clear();
  made.row_begin = {0};
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    for (std::size_t i = order.first_op(row); i < order.first_op({row.value + 1}); ++i) {
      if (marked[i]) made.ops.push_back(recompute_of(order.ops[i]));
      made.ops.push_back(order.ops[i]);
    }
    made.end_row();
  }
  return made;
}

// With all of them apart: by op of `order`, whether its gradient comes behind the begin of its R.
// Without the others nothing moves: they begin with the R that they then do themselves.
std::vector<bool> that_wait(const Schedule& order, const Schedule& all, const ComputeTiming& timing,
                            const ComputeTimes& times) {
  const StageIndex index(all);
  std::vector<bool> wait;
  wait.reserve(order.ops.size());
  for (std::int32_t id = 0; id < all.num_ops(); ++id) {
    const Op& op = all.ops[static_cast<std::size_t>(id)];
    if (op.kind == OpKind::Recompute) continue;
    const bool behind =
        id > 0 && all.ops[static_cast<std::size_t>(id) - 1].kind == OpKind::Recompute;
    const std::int32_t producer = behind ? index.producer(0, op) : -1;
    bool waits = false;
    if (producer >= 0) {
      const Placement& at = all.placement;
      const bool remote =
          at.position({op.stage.value + 1}, op.microbatch) != at.position(op.stage, op.microbatch);
      const Nanoseconds comes = timing.end[static_cast<std::size_t>(producer)] +
                                (remote ? times.transfer : Nanoseconds{0});
      waits = comes > timing.start[static_cast<std::size_t>(id) - 1];
    }
    wait.push_back(waits);
  }
  return wait;
}

}  // namespace

Schedule place_recompute(const Schedule& order, const ComputeTimes& times) {
  std::vector<bool> again;
  again.reserve(order.ops.size());
  for (const Op& op : order.ops) {
    again.push_back(is_backward(op.kind) && times.of(op.stage).recompute.value > 0);
  }
  const Schedule all = with_recompute(order, again);
  const Result<ComputeTiming> timing = time_compute(all, times);
  if (!timing) return order;
  return with_recompute(order, that_wait(order, all, timing.value(), times));
}

}  // namespace rehearse
