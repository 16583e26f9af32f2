// SPDX-License-Identifier: Apache-2.0
// Zero bubble with 1F1B's placement: backwards split into I (which the previous position waits for)
// and W (which nobody waits for), and W's put where the pipeline would idle.
// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241), section 2;
// interleaved: torch.distributed.pipelining ScheduleInterleavedZeroBubble (ZB1P).
// Their B is our I.
#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {
namespace {

// 1F1B's weaving with `warmup_step * (p-1-r)` forwards first and the W's of position r put off by
// `delay_step * r` micro-batches.
Schedule weave_h(const ScheduleShape& shape, std::int32_t warmup_step, std::int32_t delay_step) {
  const std::int32_t p = shape.positions, m = shape.microbatches;
  Schedule schedule;
  schedule.placement = loop_placement(p, 1);
  for (std::int32_t r = 0; r < p; ++r) {
    weave_split(schedule, run_of(OpKind::Forward, {r}, m), run_of(OpKind::Backward, {r}, m),
                warmup_step * (p - 1 - r), delay_step * r);
    schedule.end_row();
  }
  return schedule;
}

}  // namespace

// ZB-H1: every position keeps p activations until their W; the bubble is (p-1)(F + I - W).
Result<Schedule> zero_bubble_h1(const ScheduleShape& shape) {
  return weave_h(shape, 1, 1);
}

// ZB-H2: forwards enough to bridge the way to the last position and back. Each position keeps
// 2(p-1-r) + 1 whole activations and 2r halves that wait for their W: 2p-1 alive at most, until the
// end of W. A position's own span has a bubble of (p-1)(F + I - 2W), none at F = I = W; the
// makespan has the forwards' stagger (p-1) F besides. The paper gives no rule for the order; this
// one has the bubbles of its tables (tests/schedules/order/published_bubbles_test.cc).
Result<Schedule> zero_bubble_h2(const ScheduleShape& shape) {
  return weave_h(shape, 2, 2);
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
