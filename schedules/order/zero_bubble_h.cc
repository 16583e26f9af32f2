// Zero bubble with 1F1B's placement: backwards split into I (which the previous position waits for)
// and W (which nobody waits for), and W's put where the pipeline would idle.
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2;
// interleaved: torch.distributed.pipelining ScheduleInterleavedZeroBubble (ZB1P).
// Their B is our I.
#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {

// ZB-H1: 1F1B's forwards, W of position r delayed by r micro-batches; so every position keeps p
// activations until their W, and the bubble is (p-1)(F + I - W).
Result<Schedule> zero_bubble_h1(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  Schedule schedule;
  schedule.placement = loop_placement(p, 1);
  for (std::int32_t r = 0; r < p; ++r) {
    weave_split(schedule, run_of(OpKind::Forward, {r}, m), run_of(OpKind::Backward, {r}, m),
                p - 1 - r, r);
    schedule.end_row();
  }
  return schedule;
}

Result<Schedule> interleaved_zero_bubble(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, v = shape.chunks;
  Schedule schedule;
  schedule.placement = loop_placement(p, v);
  for (std::int32_t r = 0; r < p; ++r) {
    const Interleaved lists = interleaved_lists(p, r, shape.microbatches, v, shape.group_size);
    weave_split(schedule, lists.forwards, lists.backwards, (v - 1) * shape.group_size + p - 1 - r,
                r);
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
