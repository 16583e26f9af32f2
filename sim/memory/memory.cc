// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/memory/memory_kinds.h"
#include "sim/memory/replay/memory_replay.h"
#include "sim/memory/row_memory.h"

namespace rehearse::sim {
namespace {

void summarize(MemoryReport& report) {
  for (const RankMemory& rank : report.ranks) {
    report.peak_allocated = std::max(report.peak_allocated, rank.peak_allocated);
    report.peak_reserved = std::max(report.peak_reserved, rank.peak_reserved);
    report.peak_device = std::max(report.peak_device, rank.peak_device);
    report.steady_allocated = std::max(report.steady_allocated, rank.steady_allocated);
    report.fits &= rank.fits;
    report.beyond_count |= rank.beyond_count;
    report.left_out &= rank.left_out;
  }
}

}  // namespace

std::int64_t communicators_of(const Transformer& model, const Plan& plan) {
  const std::int64_t axes = (plan.tensor_parallel > 1) + (plan.context_parallel > 1) +
                            (plan.head_exchange_group > 0) + (plan.data_parallel > 1) +
                            (plan.pipeline_parallel > 1);
  const bool folds = model.experts.count > 0 && plan.folds_experts();
  const std::int64_t of_experts = !folds ? 0
                                         : 2 * (plan.expert_parallel > 1) +
                                               (plan.expert_tensor_parallel > 1) +
                                               (plan.expert_replicas() > 1);
  const bool embed = model.tied_embedding && plan.pipeline_parallel > 1;
  return plan.gpus() > 1 ? axes + of_experts + 1 + embed : 0;
}

namespace {

MemoryReport ruled_out(MemoryReport report) {
  report.ranks.clear();
  report.fits = false;
  report.ruled_out = true;
  return report;
}

MemoryReport replay_rows(const ReplaySetup& setup, const Cluster& cluster,
                         const MemoryNeed* need = nullptr) {
  const Schedule& order = *setup.order;
  MemoryReport report;
  report.capacity = cluster.capacity().value;
  const auto replayed = [&](RankClass row) -> std::optional<RankMemory> {
    if (need != nullptr) return row_memory_within(setup, cluster, row, *need);
    return row_memory(setup, cluster, row);
  };
  std::optional<RankMemory> fullest;
  if (need != nullptr && need->fullest) {
    fullest = replayed(need->fullest);
    if (!fullest) return ruled_out(std::move(report));
  }
  for (std::int32_t row = 0; row < order.num_rows(); ++row) {
    const std::int32_t equal = equal_row(setup, {row});
    if (equal < 0) {
      const bool known = fullest && fullest->row == RankClass{row};
      std::optional<RankMemory> memory = known ? fullest : replayed({row});
      if (!memory) return ruled_out(std::move(report));
      report.ranks.push_back(std::move(*memory));
      continue;
    }
    RankMemory same = report.ranks[static_cast<std::size_t>(equal)];
    same.row = {row};
    const std::int32_t further = static_cast<std::int32_t>(order.first_op({row})) -
                                 static_cast<std::int32_t>(order.first_op({equal}));
    if (same.at_op) same.at_op.value += further;
    for (Mapping& mapping : same.remapped) {
      if (mapping.op) mapping.op.value += further;
    }
    report.ranks.push_back(same);
  }
  if (setup.role == ReplicaRole::Root) {  // of the one position; the other replicas
    report.ranks.push_back(row_memory(with_role(setup, ReplicaRole::Other), cluster, {0}));
    report.ranks.back().row = {1};
  }
  summarize(report);
  report.even_peak_device = report.peak_device;
  return report;
}

// Whether fits() may be false after steps of another size, whose blocks the allocator then has in
// its cache beside this step's: at most what they had beyond parameters and states.
bool cache_may_break(const MemoryReport& report) {
  return std::ranges::any_of(report.ranks, [&](const RankMemory& rank) {
    const MemoryParts& parts = rank.parts;
    const std::int64_t held = parts.parameters + parts.gradients + parts.optimizer;
    return rank.peak_device + rank.peak_reserved - held > report.capacity;
  });
}

// Whether holes between the allocator's blocks may break it: the replay had to empty its cache, or
// little is left. What is there before step 0 has none, and comes once: it fits or it does not.
bool wants_margin(const MemoryReport& report) {
  return std::ranges::any_of(report.ranks, [&](const RankMemory& rank) {
    return !rank.at_building &&
           (rank.retries > 0 || near_capacity(rank.peak_device, report.capacity));
  });
}

}  // namespace

MemoryReport predict_memory(const MemoryProfile& profile, const Layout& layout,
                            const Cluster& cluster, const Schedule& order, const MemoryNeed* need) {
  const auto setup_of = [&](const Layout& loaded) {
    ReplaySetup setup =
        replay_setup(profile, loaded, cluster.gpu.compute_capability.value_or(0), order);
    if (need == nullptr) {  // who asks whether it fits does not ask what fills it
      setup.kinds = memory_kinds(loaded.model);
      if (!setup.kinds.empty()) name_kinds(setup.programs, loaded.model, setup.kinds);
    }
    return setup;
  };
  const DayLoad load = day_load(layout);
  const LoadedLayout busiest(layout, {.rows = load.rows});
  // Who asks for even load alone is not answered by the busiest rank.
  const bool decides = need != nullptr && (need->survives || load.rows <= 1);
  MemoryReport report = replay_rows(setup_of(busiest.layout()), cluster, decides ? need : nullptr);
  if (report.ruled_out) return report;
  report.load = load;
  report.gradient_copy =
      profile.fp32_gradients_at_step && layout.plan.precision.gradients < 4 ? 4 : 0;
  if (report.beyond_count) return report;
  if (!report.fits) {
    if (load.rows <= 1) return report;
    const MemoryReport even = replay_rows(setup_of(layout), cluster);
    report.fits = even.fits;
    report.left_out &= even.left_out;
    report.even_peak_device = even.peak_device;
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
      report.ranks[r].fits = even.ranks[r].fits;
    }
    if (report.fits) report.bad_day = {BadDayCause::BusiestRank, report.peak_device};
    return report;
  }
  if (load.sample > 0 || (load.rows > 1 && cache_may_break(report))) {
    const LoadedLayout worst(layout, load);
    const ReplaySetup usual = setup_of(layout);
    ReplaySetup day = setup_of(worst.layout());
    day.usual = &usual;
    const MemoryReport then = replay_rows(day, cluster);
    report.left_out &= then.left_out;
    const BadDayCause cause =
        load.sample > 0 ? BadDayCause::LongestSample : BadDayCause::BusiestRank;
    if (!then.fits) report.bad_day = {cause, then.peak_device};
  }
  if (report.verdict() == Verdict::Yes && wants_margin(report)) {
    report.bad_day = {BadDayCause::AllocatorMargin, report.peak_device};
  }
  return report;
}

RankMemory predict_row_memory(const MemoryProfile& profile, const Layout& layout,
                              const Cluster& cluster, const Schedule& order, RankClass row) {
  const auto of = [&](const Layout& loaded) {
    return row_memory(
        replay_setup(profile, loaded, cluster.gpu.compute_capability.value_or(0), order), cluster,
        row);
  };
  const LoadedLayout busiest(layout, {.rows = day_load(layout).rows});
  RankMemory memory = of(busiest.layout());
  if (!memory.fits && day_load(layout).rows > 1) memory.fits = of(layout).fits;
  return memory;
}

Result<MemoryReport> predict_memory(const Layout& layout, const Cluster& cluster,
                                    const Schedule& order) {
  Result<MemoryProfile> profile = read_memory_profile(layout.plan.runtime.name);
  if (!profile) return profile.error();
  return predict_memory(profile.value(), layout, cluster, order);
}

}  // namespace rehearse::sim
