// SPDX-License-Identifier: Apache-2.0
// An order for any placement: again and again what can start first.
#pragma once

#include <cstdint>
#include <functional>

#include "schedules/ir/schedule.h"
#include "schedules/order/growing.h"
#include "schedules/timing/recurrence.h"

namespace rehearse::order {

// One of the ops that could be next.
struct NextOp {
  bool backward = false;
  std::int64_t number = 0;  // micro-batches of its direction before it
  std::int32_t stage = 0, stages = 0;
};

// How long ops are, what holds a forward back, and what goes first.
struct StartRule {
  std::int32_t forward_time = 1, backward_time = 2;  // per chunk; transfers take no time
  std::int32_t together = 1;  // micro-batches of a direction that a forward takes at once
  // A direction begins a micro-batch only while fewer of its micro-batches have begun and not come
  // back to its first stage.
  std::int32_t in_flight = INT32_MAX;
  std::int32_t kept = INT32_MAX;  // activations of a position at most, of all its stages
  // Where several ops can start at the same time the lowest slot goes first, then a forward, then
  // the lower position. REQUIRES: of two ops the same goes first `n` micro-batches later.
  std::int64_t (*slot)(const NextOp& op) = nullptr;
};

// Where stages lie, and the rule. `placement` of a number of micro-batches: that of its directions.
struct GreedyTask {
  std::function<Placement(std::int32_t microbatches)> placement;
  StartRule rule;
};

struct GreedyOrder {
  Schedule schedule;     // 2 * stages * microbatches ops, with their number, without name
  std::int64_t end = 0;  // when the last op ends
};
GreedyOrder greedy_order(const GreedyTask& task, std::int32_t microbatches);

// How orders of the task grow; nobody knows where its state does not come again within
// `microbatches`.
Repeats greedy_repeats(const GreedyTask& task, std::int32_t microbatches);
// When the order of so many ends. REQUIRES: `repeats` is that of the task.
std::int64_t greedy_end(const GreedyTask& task, const Repeats& repeats, std::int32_t microbatches);
Growing greedy_growing(GreedyTask task, const Repeats& repeats);

// Of slots that tell kinds apart before numbers, and numbers before stages.
inline constexpr std::int64_t kKindSlots = std::int64_t{1} << 62,
                              kNumberSlots = std::int64_t{1} << 31;
// Backwards before forwards, then the lower micro-batch, the deeper stage.
std::int64_t backwards_first(const NextOp& op);

}  // namespace rehearse::order
