// SPDX-License-Identifier: Apache-2.0
// 1F1B over sequence slices (Seq1F1B): a micro-batch enters the pipeline slice by slice.
// Sources: Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language
// Model Training" (arXiv 2406.03488), whose slices also go through ZB-H1; sail-sg/
// zero-bubble-pipeline-parallelism seq1f1b.py; the idea of slices: Li et al., "TeraPipe", ICML 2021
// (arXiv 2102.07988).
#include "schedules/order/orders.h"
#include "schedules/order/weave.h"

namespace rehearse::order {
namespace {

// A causal slice reads the keys and values of the slices before it: forwards run in slice order,
// backwards in reverse, so S - 1 forwards more than in 1F1B come before the first backward.
// weave_stage(schedule, forwards, backwards, warmup) emits a position's row.
template <class Weave>
Schedule weave_slices(const ScheduleShape& shape, const Weave& weave_stage) {
  const std::int32_t p = shape.positions, slices = shape.slices;
  Schedule schedule;
  schedule.placement = loop_placement(p, 1);
  schedule.slices = slices;
  for (Stage stage{0}; stage.value < p; ++stage.value) {
    std::vector<Op> forwards, backwards;
    for (Microbatch b{0}; b.value < shape.microbatches; ++b.value) {
      for (std::int32_t slice = 0; slice < slices; ++slice) {
        forwards.push_back(compute_op(OpKind::Forward, stage, b));
        forwards.back().slice = static_cast<std::int8_t>(slice);
        backwards.push_back(compute_op(OpKind::Backward, stage, b));
        backwards.back().slice = static_cast<std::int8_t>(slices - 1 - slice);
      }
    }
    weave_stage(schedule, stage, forwards, backwards, slices - 1 + p - 1 - stage.value);
    schedule.end_row();
  }
  return schedule;
}

using Ops = std::span<const Op>;

}  // namespace

Result<Schedule> sequence_one_f_one_b(const ScheduleShape& shape) {
  return weave_slices(shape, [](Schedule& to, Stage, Ops forwards, Ops backwards, int warmup) {
    weave(to, forwards, backwards, warmup);
  });
}

// The W's of position r are put off by r slices, as in ZB-H1 by r micro-batches: every position
// keeps S + p - 1 slices until their W, and the bubble is (p-1)(F + I - W)/S.
Result<Schedule> sequence_zero_bubble_h1(const ScheduleShape& shape) {
  return weave_slices(shape, [](Schedule& to, Stage r, Ops forwards, Ops backwards, int warmup) {
    weave_split(to, forwards, backwards, warmup, r.value);
  });
}

}  // namespace rehearse::order
