// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sensitivities.h"

#include <algorithm>
#include <limits>

#include "sim/search/parallel_for.h"

namespace rehearse::sim {
namespace {

bool stopped(const SearchSetup& setup) {
  return setup.stop != nullptr && setup.stop->load();
}

}  // namespace

std::int64_t allowed_bytes(const Cluster& cluster, const SearchOptions& options) {
  return static_cast<std::int64_t>((1 - options.headroom) *
                                   static_cast<double>(cluster.capacity().value));
}

bool is_within(const MemoryReport& memory, std::int64_t allowed, const SearchOptions& options) {
  if (options.survive) return memory.verdict() == Verdict::Yes && memory.peak_device <= allowed;
  return memory.fits && memory.even_peak_device <= allowed;
}

std::vector<Sensitivity> sensitivities_of(const SearchSetup& setup, const SearchOptions& options,
                                          LiveBounds& live, std::span<const FoundPlan> plans,
                                          std::span<const std::pair<double, Plan>> refused) {
  const Cluster& cluster = *setup.cluster;
  const auto most_plans = static_cast<std::size_t>(std::max(options.changed_plans, 1));
  const std::size_t most_refused = 6 * most_plans;
  std::vector<Change> changes;
  for (std::int32_t what = 0;; ++what) {
    std::optional<Change> change = changed(cluster, what, options.change);
    if (!change) break;
    changes.push_back(std::move(*change));
  }
  std::vector<Sensitivity> found(changes.size());
  parallel_for(changes.size(), options.threads, [&](std::size_t i) {
    const Change& change = changes[i];
    Sensitivity& to = found[i];
    to.what = change.what;
    to.factor = options.change;
    // Memory changes no time but where a cache is emptied, and nothing else changes what fits.
    const bool memory = change.cluster.capacity() != cluster.capacity();
    const bool remaps = std::ranges::any_of(plans, &FoundPlan::remaps);
    double least = std::numeric_limits<double>::infinity();
    const auto attempt = [&](const Plan& plan, RankClass fullest) {
      if (stopped(setup)) return false;
      Scenario scenario = setup.space->base;
      scenario.plan = plan;
      scenario.gpus = plan.gpus();
      const std::int64_t allowed = allowed_bytes(change.cluster, options);
      std::optional<MemoryNeed> need;
      if (memory) need = MemoryNeed{allowed, options.survive, fullest};
      const Result<Prediction> made =
          predict(scenario, change.cluster,
                  {.memory = memory || remaps,
                   .memory_limit = allowed,
                   .need = need,
                   .lifetimes = false,
                   .confidence = false,
                   .leave_out = true,
                   .scale_up_factor = change.scale_up,
                   .tables = &setup.tables});  // chosen by names and kinds, which no change moves
      if (!made) return false;
      if (memory && !is_within(made.value().memory, allowed, options)) return false;
      const FoundPlan one = summarize(made.value());
      if (one.seconds_per_token() >= least) return true;
      least = one.seconds_per_token();
      to.step_s = one.step_s;
      to.plan = plan;
      return true;
    };
    if (!memory) {
      for (const FoundPlan& plan : plans) attempt(plan.plan, {});
      return;
    }
    least = plans.front().seconds_per_token();
    to.step_s = plans.front().step_s;
    to.plan = plans.front().plan;
    std::size_t tried = 0, let_in = 0;
    for (const auto& [key, plan] : refused) {
      if (tried == most_refused || let_in == most_plans) break;
      const std::int64_t allowed = allowed_bytes(change.cluster, options);
      const LiveBounds::Bound bound = live.bound(setup, plan, change.cluster);
      if (bound.bytes > allowed) continue;
      ++tried;
      let_in += attempt(plan, bound.fullest) ? 1u : 0u;
    }
  });
  std::ranges::stable_sort(found, {}, &Sensitivity::step_s);
  std::vector<Sensitivity> sensitivities;
  for (Sensitivity& one : found) {
    if (one.step_s > 0) sensitivities.push_back(std::move(one));
  }
  return sensitivities;
}

}  // namespace rehearse::sim
