// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/row_memory.h"

#include <algorithm>

#include "schedules/ir/stage_index.h"
#include "sim/memory/memory_states.h"

namespace rehearse::sim {
namespace {

// The same ops on the same stages, one micro-batch of `a` for each of `b`.
bool same_programs(const Schedule& order, RankClass a, RankClass b) {
  const auto one = order.program(a), other = order.program(b);
  if (one.size() != other.size()) return false;
  std::vector<std::int32_t> meant(static_cast<std::size_t>(order.microbatches), -1);
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto here = work_of(order, one[i]), there = work_of(order, other[i]);
    if (one[i].kind != other[i].kind || here.size() != there.size()) return false;
    for (std::size_t w = 0; w < here.size(); ++w) {
      const Op &x = here[w], &y = there[w];
      if (x.kind != y.kind || x.stage != y.stage || x.slice != y.slice) return false;
      if (x.microbatch.value < 0 || y.microbatch.value < 0) {
        if (x.microbatch != y.microbatch) return false;
        continue;
      }
      std::int32_t& of = meant[x.microbatch.index()];
      if (of < 0) of = y.microbatch.value;
      if (of != y.microbatch.value) return false;
    }
  }
  return true;
}

}  // namespace

RankMemory row_memory(const ReplaySetup& setup, const Cluster& cluster, RankClass row) {
  const Layout& layout = setup.layout;
  const std::int64_t capacity = cluster.capacity().value;
  const std::int64_t context = setup.profile->context.of(setup.compute_capability);
  const std::int64_t communicators =
      communicators_of(layout.model, layout.plan) * setup.profile->communicator;
  const std::int64_t outside = context + communicators;
  ReplayResult replay = replay_row(setup, row, -1);
  const bool beyond_count = replay.out_of_memory;
  const bool fits = !beyond_count && replay.memory.peak_reserved + outside <= capacity;
  bool left_out = replay.memory.left_out;
  if (!fits && !beyond_count && replay.memory.peak_allocated + outside <= capacity) {
    // What is cached can be given back: the allocator retries before it fails.
    const ReplayResult tight = replay_row(setup, row, capacity - outside);
    left_out &= tight.memory.left_out;
    if (!tight.out_of_memory) replay = tight;
  }
  RankMemory memory = replay.memory;
  memory.left_out = left_out;
  memory.peak_device = memory.peak_reserved + outside;
  memory.parts.communicators = communicators;
  memory.parts.context = context;
  if (layout.model.experts.count > 0) {
    memory.parts.experts = expert_state_bytes(
        layout.plan, row_units(layout, setup.stages[row.index()], setup.order->placement.stages()));
  }
  memory.beyond_count = beyond_count;
  memory.fits = !beyond_count && memory.peak_device <= capacity;
  return memory;
}

std::int32_t equal_row(const ReplaySetup& setup, RankClass row) {
  for (std::int32_t other = 0; other < row.value; ++other) {
    const RankClass earlier{other};
    if (setup.stages[earlier.index()] == setup.stages[row.index()] &&
        same_programs(*setup.order, earlier, row)) {
      return other;
    }
  }
  return -1;
}

}  // namespace rehearse::sim
