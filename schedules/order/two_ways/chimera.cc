// SPDX-License-Identifier: Apache-2.0
// Chimera: two pipelines in opposite directions, each position holding a stage of either.
// Source: Li & Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
// Bidirectional Pipelines", SC'21 (arXiv 2107.06925), figure 3, for as many micro-batches as
// positions. For more its section 3.5 concatenates that, which loses (p-2)(m/p + 1); doubles
// forwards, two micro-batches in one, so that every op is as long, for twice the activations; or
// halves backwards, which is the same order of half micro-batches. The rule of chimera loses
// 2(p-2), as doubling does, with any even number of micro-batches and at most p activations.
#include "schedules/order/greedy.h"
#include "schedules/order/orders.h"

namespace rehearse::order {
namespace {

GreedyTask two_ways(const ScheduleShape& shape, const StartRule& rule) {
  const std::int32_t p = shape.positions;
  return {.placement = [p](std::int32_t m) { return bidirectional_placement(p, m / 2); },
          .rule = rule};
}

// What would stand first if each direction were alone and every op a slot, micro-batch j's F on
// stage s at s + 2j, its B at 2p-1-s + 2j. From 4p micro-batches on it repeats itself: two more,
// one of each direction, are an F and a B of each more in the middle of every row.
GreedyTask one_by_one(const ScheduleShape& shape) {
  return two_ways(shape, {.kept = shape.positions, .slot = [](const NextOp& op) {
                            return 2 * op.number +
                                   (op.backward ? 2 * op.stages - 1 - op.stage : op.stage);
                          }});
}

// Two forwards take as long as a backward: a slot each. First what is of one kind, then the lower
// number and stage.
GreedyTask doubled(const ScheduleShape& shape, bool backward_first) {
  StartRule rule{.backward_time = 1, .together = 2, .kept = 2 * shape.positions};
  if (backward_first) {
    rule.slot = [](const NextOp& op) {
      return (op.backward ? 0 : kKindSlots) + op.number * kNumberSlots + op.stage;
    };
  } else {
    rule.slot = [](const NextOp& op) {
      return (op.backward ? kKindSlots : 0) + op.number * kNumberSlots + op.stage;
    };
  }
  return two_ways(shape, rule);
}

}  // namespace

Result<Schedule> chimera(const ScheduleShape& shape) {
  return greedy_order(one_by_one(shape), shape.microbatches).schedule;
}

// The better of the two, whichever that is for p and m.
Result<Schedule> chimera_doubled(const ScheduleShape& shape) {
  GreedyOrder one = greedy_order(doubled(shape, true), shape.microbatches);
  GreedyOrder other = greedy_order(doubled(shape, false), shape.microbatches);
  return std::move(other.end < one.end ? other.schedule : one.schedule);
}

Growing chimera_doubled_growing(const ScheduleShape& shape) {
  const std::int32_t m = shape.microbatches;
  const GreedyTask one = doubled(shape, true), other = doubled(shape, false);
  const Repeats of_one = greedy_repeats(one, m), of_other = greedy_repeats(other, m);
  return greedy_end(other, of_other, m) < greedy_end(one, of_one, m)
             ? greedy_growing(other, of_other)
             : greedy_growing(one, of_one);
}

}  // namespace rehearse::order
