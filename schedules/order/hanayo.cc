// SPDX-License-Identifier: Apache-2.0
// Hanayo: a model in waves, 2W chunks on every position, placed zigzag, so that a wave turns
// without a transfer and no parameter is held twice. Source: Liu, Cheng, Zhou, You, "Hanayo:
// Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency", SC'23
// (arXiv 2308.15762): placement and bubble (2p-2)/(3pW+p-1). Its order is a figure for m = p; the
// rule here is our own: what can start first goes first. It idles 4(p-1) of F = 1, B = 2 per chunk
// at W = 1 and m = p, which is less than the paper's ratio, and comes within 4 % of it from W = 4
// on. For more micro-batches the paper has no rule; at most 2p are in flight, which idles 3(p-1)
// and keeps less than twice what m = p keeps.
#include "schedules/order/greedy.h"
#include "schedules/order/orders.h"

namespace rehearse::order {
namespace {

GreedyTask waves(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions;
  return {.placement = [p, v = shape.chunks](std::int32_t) { return wave_placement(p, v); },
          .rule = {.in_flight = 2 * p, .slot = backwards_first}};
}

}  // namespace

Result<Schedule> hanayo(const ScheduleShape& shape) {
  return greedy_order(waves(shape), shape.microbatches).schedule;
}

Growing hanayo_growing(const ScheduleShape& shape) {
  return greedy_growing(waves(shape), greedy_repeats(waves(shape), shape.microbatches));
}

}  // namespace rehearse::order
