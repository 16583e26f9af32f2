// SPDX-License-Identifier: Apache-2.0
// Chimera: two pipelines in opposite directions, each position holding a stage of either.
// Source: Li & Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
// Bidirectional Pipelines", SC'21 (arXiv 2107.06925), figures 3 and 7 ("direct concatenation").
#include <algorithm>

#include "schedules/order/orders.h"

namespace rehearse::order {
namespace {

struct Slot {
  std::int32_t time;  // in slots of one F or one B
  Op op;
};

// A unit is p micro-batches, half of them in each direction. In slots, micro-batch j of a direction
// runs F on stage s at s + 2j and B at 2p-1-s + 2j; as p is even, the other direction's slots on
// the same position have the other parity, and the next unit starts 2p slots later.
void add_direction(std::vector<Slot>& slots, Stage stage, std::int32_t p, std::int32_t first,
                   std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t unit = i / (p / 2), j = i % (p / 2);
    const std::int32_t begin = 2 * p * unit + 2 * j;
    const Microbatch b{first + i};
    slots.push_back({begin + stage.value, compute_op(OpKind::Forward, stage, b)});
    slots.push_back({begin + 2 * p - 1 - stage.value, compute_op(OpKind::Backward, stage, b)});
  }
}

}  // namespace

Result<Schedule> chimera(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, half = shape.microbatches / 2;
  Schedule schedule;
  schedule.placement = bidirectional_placement(p, half);
  for (std::int32_t r = 0; r < p; ++r) {
    std::vector<Slot> slots;
    add_direction(slots, {r}, p, 0, half);
    add_direction(slots, {p - 1 - r}, p, half, half);
    std::ranges::sort(slots, {}, &Slot::time);
    for (const Slot& slot : slots) schedule.ops.push_back(slot.op);
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
