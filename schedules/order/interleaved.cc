// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (virtual pipeline): v chunks per position cut the bubble by v.
// Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", SC'21 (arXiv 2104.04473), section 2.2 and figure 4; the group size N and
// micro-batches that p does not divide: Megatron-LM core/pipeline_parallel/schedules.py
// (get_schedule_table, microbatch_group_size_per_vp_stage).
#include <algorithm>

#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {

// Warm-up of position r: (v-1) N forwards until the first micro-batches reach the last chunk, and
// 2 (p-1-r) more for the way there and back. Alive at most: one more than the warm-up.
Result<Schedule> interleaved_one_f_one_b(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, v = shape.chunks;
  Schedule schedule;
  schedule.placement = loop_placement(p, v);
  schedule.ops.reserve(2 * static_cast<std::size_t>(p) * static_cast<std::size_t>(v) *
                       static_cast<std::size_t>(shape.microbatches));
  for (std::int32_t r = 0; r < p; ++r) {
    const Interleaved lists = interleaved_lists(p, r, shape.microbatches, v, shape.group_size);
    // With one chunk there is no way around the loop: plain 1F1B.
    const std::int32_t warmup = v == 1 ? p - 1 - r : 2 * (p - 1 - r) + (v - 1) * shape.group_size;
    if (shape.pairs) {
      weave_pairs(schedule, lists.forwards, lists.backwards, warmup + shape.extra_warmup);
    } else {
      weave(schedule, lists.forwards, lists.backwards, warmup + shape.extra_warmup);
    }
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
