// SPDX-License-Identifier: Apache-2.0
// How much memory every rank needs: its program replayed, tensor by tensor, through the allocator
// of the framework that the plan names, or read off the arena of our own executor.
//
// Deliberately not here: time (a peak names the op, the caller knows when it runs), and closed
// forms of papers (sim/formulas), which are cross-checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/cluster/cluster.h"
#include "sim/memory/bad_day.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// Report key `parts`. The first six add up to peak_allocated, exactly.
struct MemoryParts {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;  // [B]
  std::int64_t activations = 0;  // kept for a backward, or handed between segments and stages
  std::int64_t buffers = 0;      // of gathers and reductions
  std::int64_t workspace = 0;    // temporaries of an op, library workspaces
  std::int64_t communicators = 0, context = 0;  // outside the allocator
  // Parameters, gradients and optimizer state of routed experts. No part of the sum.
  std::int64_t experts = 0;
  std::int64_t allocated() const {
    return parameters + gradients + optimizer + activations + buffers + workspace;
  }
};

// What a rank has of a kind of block, in a model whose layers differ (memory_kinds.h).
struct KindMemory {
  std::string kind;              // "mamba2", "attention", "experts", "embedding", ...
  std::int64_t layers = 0;       // of the rank that have one
  std::int64_t parameters = 0;   // of them on the rank, whatever ZeRO shards
  std::int64_t activations = 0;  // [B] of MemoryParts::activations; all kinds make that, exactly
};

// Whether a peak is so near the capacity, on either side, that `fits` may well be wrong: published
// peaks lie up to 5 % from the predicted ones (docs/memory.md, "Reached").
constexpr double kNearCapacity = 0.05;
constexpr bool near_capacity(std::int64_t peak_device, std::int64_t capacity) {
  const auto peak = static_cast<double>(peak_device), limit = static_cast<double>(capacity);
  return peak >= (1 - kNearCapacity) * limit && peak <= (1 + kNearCapacity) * limit;
}

// What the allocator asked of the driver while an op ran.
struct Mapping {
  OpId op{};               // of the compute order; none: in the optimizer step
  std::int64_t bytes = 0;  // [B]
};

struct RankMemory {
  RankClass row{};                    // of the schedule that was given
  std::int64_t peak_allocated = 0;    // [B] max_memory_allocated
  std::int64_t peak_reserved = 0;     // [B] max_memory_reserved
  std::int64_t peak_device = 0;       // [B] peak_reserved + communicators + context
  std::int64_t steady_allocated = 0;  // [B] memory_allocated after a step
  // Op of the schedule with the peak; none: in the optimizer step, or at_building.
  OpId at_op{};
  // The peak is before step 0: a framework that keeps all parameters in one flat buffer copies them
  // there while it builds the model, and both copies live until then (memory_resident.cc).
  bool at_building = false;
  // Every step that was replayed left out repetitions of its middle: of a step with more of them
  // all figures are the same. at_op_behind: at_op stands behind what was left out.
  bool left_out = false, at_op_behind = false;
  std::int64_t peak_in_steps = 0;  // [B] at most peak_allocated, which it is unless at_building
  MemoryParts parts;               // what was alive at the peak
  std::vector<KindMemory> kinds;   // of models whose layers differ, where all figures are wanted
  std::int64_t host = 0;           // [B] most in host memory: plan.offload
  std::int64_t nvme = 0;           // [B] likewise on the node's drives
  std::int32_t retries = 0;  // allocations that had to empty the cache first, in all replayed steps
  // What a step gives back and maps anew that empties the cache though steps before it did.
  std::vector<Mapping> remapped;
  bool fits = true;           // at even load
  bool beyond_count = false;  // no integer holds the bytes: the figures are those until then

  std::int64_t remapped_bytes() const {
    std::int64_t sum = 0;
    for (const Mapping& mapping : remapped) sum += mapping.bytes;
    return sum;
  }
};

// A key of a plan that differs in another one; values as JSON.
struct PlanChange {
  std::string key, from, to;
};
// The nearest plan to one that does not fit (sim/search/nearest_fit.h).
struct NearestPlan {
  std::vector<PlanChange> changes;
  bool fits = false;  // false: no plan that was tried does; this is the one that needs least
  std::int64_t peak_device = 0, host = 0;  // [B] as below
  double step_s = 0;                       // as predicted; 0: it does not fit
  std::int32_t tried = 0;                  // plans whose memory was predicted
};

// A change of one key with which a tight plan holds on its bad day (sim/search/what_holds.h).
struct Remedy {
  std::string key, to;           // "expert_capacity", JSON
  std::int64_t peak_device = 0;  // [B]
};

// What a search asks of a plan: whether every rank stays within a limit. Rows are replayed until
// one surely does not.
struct MemoryNeed {
  std::int64_t limit = 0;  // [B] of peak_device; at most the capacity
  bool survives = false;   // a plan that is not Verdict::Yes is not wanted either
  RankClass fullest{};     // the row to begin with; none: the first
};

// Peaks are of the rank whose experts are busiest, as plan.expert_routing says; `fits` asks for no
// more than even load.
struct MemoryReport {
  bool fits = true;
  BadDay bad_day;  // none: it fits on every day that the plan tells of, or it does not fit at all
  DayLoad load;    // of the worst of them
  // [B] as peak_device, at even load. Looked for where the busiest rank does not fit, else the
  // same.
  std::int64_t even_peak_device = 0;
  bool beyond_count = false;  // of a rank
  bool left_out = true;       // of every rank, under every load that was replayed
  bool ruled_out = false;     // not what was needed: `fits` is false and no figure is known
  std::int64_t capacity = 0;  // [B] of one GPU, for everything
  // The largest over rows, each figure on its own.
  std::int64_t peak_allocated = 0, peak_reserved = 0, peak_device = 0, steady_allocated = 0;
  std::int64_t host = 0, nvme = 0;  // likewise
  // [B] a node's memory, and its drives, over its ranks; empty: not known
  std::optional<std::int64_t> host_capacity, nvme_capacity;
  std::vector<RankMemory> ranks;  // per row of the schedule
  // [B] per parameter of the fp32 copies of gradients that the update makes, part of `optimizer`.
  std::int32_t gradient_copy = 0;
  std::string note;  // what the reader should hear of it (zero_order.h), filled by who reports
  std::optional<NearestPlan> instead;  // of a plan that does not fit; filled by who reports
  std::vector<Remedy> holds;           // of a tight one; likewise

  Verdict verdict() const {
    if (!fits) return Verdict::No;
    return bad_day.cause == BadDayCause::None ? Verdict::Yes : Verdict::Tight;
  }
  bool near_capacity() const { return sim::near_capacity(peak_device, capacity); }
  bool at_building() const { return std::ranges::any_of(ranks, &RankMemory::at_building); }
};

// Framework runtimes. `order` is an L0 schedule (Level::Compute) with rows for every position.
// REQUIRES: plan.runtime is a framework's and `profile` its profile; plan.stage_layers has an entry
// per stage of the order. Where the order is a shorter one than the plan's
// (schedules/passes/planned/plan_order.h) the figures are those of the plan's if
// MemoryReport::left_out. `need`: null, all figures are wanted.
MemoryReport predict_memory(const MemoryProfile& profile, const Layout& layout,
                            const Cluster& cluster, const Schedule& order,
                            const MemoryNeed* need = nullptr);
// The same of one row: its peaks as the busiest rank has them, `fits` at even load.
RankMemory predict_row_memory(const MemoryProfile& profile, const Layout& layout,
                              const Cluster& cluster, const Schedule& order, RankClass row);
// The same with the profile of the plan's runtime, which is read.
Result<MemoryReport> predict_memory(const Layout& layout, const Cluster& cluster,
                                    const Schedule& order);

// Runtime `rehearse`: the arena plan that the schedule itself carries
// (schedules/passes/lifetimes.cc). REQUIRES: Level::Full with values, offsets and arena_bytes.
MemoryReport arena_memory(const Schedule& schedule, const Cluster& cluster, Bytes communicators,
                          Bytes context);

// Communicators that a rank takes part in: one per mesh axis with more than one rank, the world,
// and the pair that shares a tied table.
std::int64_t communicators_of(const Transformer& model, const Plan& plan);

// Below the replay's peak_allocated of the fullest rank, always, in microseconds: states, what is
// kept by the micro-batches that 1F1B orders must have in flight, and the loss.
std::int64_t memory_lower_bound(const MemoryProfile& profile, const Layout& layout);

}  // namespace rehearse::sim
