// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/v_block.h"

#include <algorithm>
#include <utility>

namespace rehearse::order {

GreedyRule rule_of(const Block& block, std::int32_t positions) {
  GreedyRule rule;
  rule.interval = kInterval;
  rule.ahead = block.ahead;
  const auto leg = [&](std::vector<std::int64_t>& places, std::int64_t first, std::int32_t stride) {
    for (std::int32_t i = 0; i < positions; ++i) places.push_back(first + std::int64_t{i} * stride);
    return places.back();
  };
  std::vector<std::int64_t> backward;  // in the order in which they run
  std::int64_t end = leg(rule.forward_place, 0, block.stride[0]);
  end = leg(rule.forward_place, end + block.turn[0], block.stride[1]);
  end = leg(backward, end + block.turn[1], block.stride[2]);
  leg(backward, end + block.turn[2], block.stride[3]);
  rule.backward_place.assign(backward.rbegin(), backward.rend());
  return rule;
}

Growing growing_of(PlanTask task, GreedyRule rule) {
  PlanTask first = task;  // it is looked for in so many; five per position were enough so far
  first.microbatches = std::min(task.microbatches, 4096 + 16 * task.placement.positions);
  const Repeats repeats = greedy_repeats(first, rule);
  return {.repeated = repeats.microbatches,
          .least = repeats.least,
          .with = [task = std::move(task),
                   rule = std::move(rule)](std::int32_t microbatches) -> Result<Schedule> {
            PlanTask fewer = task;
            fewer.microbatches = microbatches;
            return greedy_order(fewer, rule);
          }};
}

}  // namespace rehearse::order
