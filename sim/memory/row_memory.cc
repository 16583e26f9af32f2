// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/row_memory.h"

#include <algorithm>
#include <utility>

#include "schedules/ir/stage_index.h"
#include "sim/memory/memory_kinds.h"
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

// [B] beside the allocator: context, and buffers of communicators.
struct Outside {
  std::int64_t context = 0, communicators = 0;
  std::int64_t sum() const { return context + communicators; }
};
Outside outside_of(const ReplaySetup& setup) {
  const Layout& layout = setup.layout;
  return {
      .context = setup.profile->context.of(setup.compute_capability),
      .communicators = communicators_of(layout.model, layout.plan) * setup.profile->communicator};
}

// What a replay without a capacity says, with the cache emptied where that lets it fit.
RankMemory memory_of(ReplayResult replay, const ReplaySetup& setup, const Cluster& cluster,
                     RankClass row) {
  const Layout& layout = setup.layout;
  const std::int64_t capacity = cluster.capacity().value;
  const Outside beside = outside_of(setup);
  const std::int64_t outside = beside.sum();
  const bool beyond_count = replay.out_of_memory;
  const bool fits = !beyond_count && replay.memory.peak_reserved + outside <= capacity;
  bool left_out = replay.memory.left_out;
  if (!fits && !beyond_count && replay.memory.peak_allocated + outside <= capacity) {
    // What is cached can be given back: the allocator retries before it fails.
    const ReplayResult tight = replay_row(setup, row, {.capacity = capacity - outside});
    left_out &= tight.memory.left_out;
    if (!tight.out_of_memory) replay = tight;
  }
  RankMemory memory = replay.memory;
  memory.left_out = left_out;
  memory.peak_device = memory.peak_reserved + outside;
  memory.parts.communicators = beside.communicators;
  memory.parts.context = beside.context;
  if (!setup.kinds.empty()) {
    std::vector<SegmentInfo> segments;
    for (const Stage stage : setup.stages[row.index()]) {
      const std::vector<SegmentInfo>& of = setup.segments[stage.index()];
      segments.insert(segments.end(), of.begin(), of.end());
    }
    memory.kinds = kind_memory(layout, segments, setup.kinds, replay.kinds);
  }
  if (layout.model.experts.count > 0) {
    memory.parts.experts = expert_state_bytes(
        layout.plan, row_units(layout, setup.stages[row.index()], setup.order->placement.stages()));
  }
  memory.beyond_count = beyond_count;
  memory.fits = !beyond_count && memory.peak_device <= capacity;
  return memory;
}

}  // namespace

RankMemory row_memory(const ReplaySetup& setup, const Cluster& cluster, RankClass row) {
  return memory_of(replay_row(setup, row, {}), setup, cluster, row);
}

// As long as the limit refuses nothing, the replay is that without one. What it refuses and the
// capacity would not, both take: more than the limit. What the capacity refuses too empties the
// cache, which a plan that survives its bad day never does (wants_margin, memory.cc), or is built.
std::optional<RankMemory> row_memory_within(const ReplaySetup& setup, const Cluster& cluster,
                                            RankClass row, const MemoryNeed& need) {
  const std::int64_t outside = outside_of(setup).sum();
  if (need.limit < outside) return {};
  ReplayResult replay =
      replay_row(setup, row, {.capacity = need.limit - outside, .retries = false});
  if (!replay.out_of_memory) return memory_of(std::move(replay), setup, cluster, row);
  if (replay.refused + outside <= cluster.capacity().value) return {};
  if (need.survives && !replay.memory.at_building) return {};
  const RankMemory memory = row_memory(setup, cluster, row);
  if (memory.fits && memory.peak_device <= need.limit) return memory;
  return {};
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
