// SPDX-License-Identifier: Apache-2.0
// Looped breadth-first: all micro-batches through a chunk before the next chunk starts.
// Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023 (arXiv 2211.05953); as in
// torch.distributed.pipelining ScheduleLoopedBFS, whose backward runs the micro-batches in reverse.
#include "schedules/order/orders.h"

namespace rehearse::order {

// All m v activations are alive at the turn; in return the parameters of a chunk are needed in one
// run of ops only, which is what sharded parameters (ZeRO-3) want.
Result<Schedule> looped_breadth_first(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, v = shape.chunks, m = shape.microbatches;
  Schedule schedule;
  schedule.placement = loop_placement(p, v);
  for (std::int32_t r = 0; r < p; ++r) {
    for (std::int32_t c = 0; c < v; ++c) {
      for (Microbatch b{0}; b.value < m; ++b.value) {
        schedule.ops.push_back(compute_op(OpKind::Forward, {c * p + r}, b));
      }
    }
    for (std::int32_t c = v - 1; c >= 0; --c) {
      for (Microbatch b{m - 1}; b.value >= 0; --b.value) {
        schedule.ops.push_back(compute_op(OpKind::Backward, {c * p + r}, b));
      }
    }
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
