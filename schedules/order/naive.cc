// SPDX-License-Identifier: Apache-2.0
// Naive model parallelism: a micro-batch goes all the way through and back before the next starts.
// Source: the starting point of Huang et al., "GPipe", NeurIPS 2019 (arXiv 1811.06965), figure 2b.
#include "schedules/order/orders.h"

namespace rehearse::order {

// One position works at a time: p - 1 of p are idle, and one activation is alive.
Result<Schedule> naive(const ScheduleShape& shape) {
  Schedule schedule;
  schedule.placement = loop_placement(shape.positions, 1);
  for (Stage stage{0}; stage.value < shape.positions; ++stage.value) {
    for (Microbatch b{0}; b.value < shape.microbatches; ++b.value) {
      schedule.ops.push_back(compute_op(OpKind::Forward, stage, b));
      schedule.ops.push_back(compute_op(OpKind::Backward, stage, b));
    }
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
