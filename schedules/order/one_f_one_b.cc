// SPDX-License-Identifier: Apache-2.0
// One forward, one backward (1F1B), and its eager form.
// Sources: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-Flush),
// ICML 2021 (arXiv 2006.09503); Fan et al., "DAPPLE", PPoPP 2021 (arXiv 2007.01045).
// Eager: Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023 (arXiv
// 2211.05322), section 4: twice the warm-up, so that an activation's transfer hides behind compute.
#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {
namespace {

// Position r runs `warmup_step * (p-1-r)` forwards, then alternates, then drains.
// warmup_step 1: at most p - r micro-batches are alive there, which is what 1F1B is for.
Schedule alternate(const ScheduleShape& shape, std::int32_t warmup_step) {
  Schedule schedule;
  schedule.placement = loop_placement(shape.positions, 1);
  for (Stage stage{0}; stage.value < shape.positions; ++stage.value) {
    weave(schedule, run_of(OpKind::Forward, stage, shape.microbatches),
          run_of(OpKind::Backward, stage, shape.microbatches),
          warmup_step * (shape.positions - 1 - stage.value));
    schedule.end_row();
  }
  return schedule;
}

}  // namespace

Result<Schedule> one_f_one_b(const ScheduleShape& shape) {
  return alternate(shape, 1);
}

Result<Schedule> eager_one_f_one_b(const ScheduleShape& shape) {
  return alternate(shape, 2);
}

}  // namespace rehearse::order
