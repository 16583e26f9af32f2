// SPDX-License-Identifier: Apache-2.0
#include "sim/search/estimate/search_live.h"

#include <algorithm>

#include "schedules/passes/planned/plan_order.h"
#include "sim/memory/peak_lower_bound.h"

namespace rehearse::sim {
namespace {

constexpr std::size_t kMostOps = 16'000'000;  // remembered, 4 bytes each

std::string key_of(const Plan& plan) {
  std::string key = plan.schedule;
  for (const std::int32_t number :
       {plan.pipeline_parallel, plan.virtual_stages, plan.microbatches(),
        plan.microbatch_group_size, plan.extra_warmup, plan.sequence_slices}) {
    key += ' ' + std::to_string(number);
  }
  return key + ' ' + std::to_string(plan.memory_limit);
}

}  // namespace

// Null: the order cannot be generated.
std::shared_ptr<const LiveBounds::Rows> LiveBounds::rows_of(const Transformer& model,
                                                            const Plan& plan) {
  const std::string key = key_of(plan);
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
  }
  Plan filled = plan;
  const Result<Schedule> order = order_of(model, filled);
  if (!order) return nullptr;
  const auto rows = std::make_shared<const Rows>(live_rows(order.value()));
  const std::lock_guard lock(mutex_);
  std::size_t ops = 0;
  for (const LiveRow& row : *rows) ops += row.program.size();
  if (ops_ + ops > kMostOps) {
    known_.clear();
    ops_ = 0;
  }
  if (known_.emplace(key, rows).second) ops_ += ops;
  return rows;
}

LiveBounds::Bound LiveBounds::bound(const SearchSetup& setup, const Plan& plan,
                                    const Cluster& cluster) {
  if (plan.runtime.performer().plans_arena) return {};
  const Transformer& model = setup.space->base.model;
  const MemoryProfile& profile = setup.tables.profile(plan);
  const std::int32_t capability = cluster.gpu.compute_capability.value_or(0);
  BoundTables tables(&profile, model, capability);
  const FamilyBound family = tables.family(plan);
  Bound bound{.bytes = tables.lower_bound(family, plan)};
  if (bound.bytes > cluster.capacity().value) return bound;
  const std::shared_ptr<const Rows> rows = rows_of(model, plan);
  if (rows == nullptr) return bound;
  const LiveBytes live(profile, {model, plan}, capability);
  std::int64_t most = -1;
  for (std::size_t r = 0; r < rows->size(); ++r) {
    const LiveRow& row = (*rows)[r];
    const std::int64_t bytes = tables.row_bound(family, plan, row.stages, live.most(row.program));
    if (bytes > most) bound.fullest = {static_cast<std::int32_t>(r)};
    most = std::max(most, bytes);
  }
  bound.bytes = std::max(bound.bytes, most);
  return bound;
}

}  // namespace rehearse::sim
