// SPDX-License-Identifier: Apache-2.0
// All forwards, then all backwards (GPipe, AFAB).
// Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism", NeurIPS 2019 (arXiv 1811.06965), figure 2c.
#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {

// Every position keeps the activations of all micro-batches: simple, and the reason for 1F1B.
Result<Schedule> gpipe(const ScheduleShape& shape) {
  Schedule schedule;
  schedule.placement = loop_placement(shape.positions, 1);
  for (Stage stage{0}; stage.value < shape.positions; ++stage.value) {
    weave(schedule, run_of(OpKind::Forward, stage, shape.microbatches),
          run_of(OpKind::Backward, stage, shape.microbatches), shape.microbatches);
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
