// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.h"

#include <algorithm>

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
  }
}

}  // namespace

std::int64_t communicators_of(const Transformer& model, const Plan& plan) {
  const std::int64_t axes = (plan.tensor_parallel > 1) + (plan.context_parallel > 1) +
                            (plan.data_parallel > 1) + (plan.pipeline_parallel > 1);
  const bool folds = model.experts.count > 0 && plan.folds_experts();
  const std::int64_t of_experts = !folds ? 0
                                         : 2 * (plan.expert_parallel > 1) +
                                               (plan.expert_tensor_parallel > 1) +
                                               (plan.expert_replicas() > 1);
  const bool embed = model.tied_embedding && plan.pipeline_parallel > 1;
  return plan.gpus() > 1 ? axes + of_experts + 1 + embed : 0;
}

MemoryReport predict_memory(const MemoryProfile& profile, const Layout& layout,
                            const Cluster& cluster, const Schedule& order) {
  MemoryReport report;
  report.capacity = cluster.capacity().value;
  report.gradient_copy =
      profile.fp32_gradients_at_step && layout.plan.precision.gradients < 4 ? 4 : 0;
  const ReplaySetup setup =
      replay_setup(profile, layout, cluster.gpu.compute_capability.value_or(0), order);
  for (std::int32_t row = 0; row < order.num_rows(); ++row) {
    const std::int32_t equal = equal_row(setup, {row});
    if (equal < 0) {
      report.ranks.push_back(row_memory(setup, cluster, {row}));
      continue;
    }
    RankMemory same = report.ranks[static_cast<std::size_t>(equal)];
    same.row = {row};
    if (same.at_op) {
      same.at_op.value += static_cast<std::int32_t>(order.first_op({row})) -
                          static_cast<std::int32_t>(order.first_op({equal}));
    }
    report.ranks.push_back(same);
  }
  summarize(report);
  return report;
}

Result<MemoryReport> predict_memory(const Layout& layout, const Cluster& cluster,
                                    const Schedule& order) {
  Result<MemoryProfile> profile = read_memory_profile(layout.plan.runtime.name);
  if (!profile) return profile.error();
  return predict_memory(profile.value(), layout, cluster, order);
}

}  // namespace rehearse::sim
