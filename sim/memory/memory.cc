// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.h"

#include <algorithm>

#include "sim/memory/memory_replay.h"
#include "sim/memory/memory_states.h"

namespace rehearse::sim {
namespace {

void summarize(MemoryReport& report) {
  for (const RankMemory& rank : report.ranks) {
    report.peak_allocated = std::max(report.peak_allocated, rank.peak_allocated);
    report.peak_reserved = std::max(report.peak_reserved, rank.peak_reserved);
    report.peak_device = std::max(report.peak_device, rank.peak_device);
    report.steady_allocated = std::max(report.steady_allocated, rank.steady_allocated);
    report.fits &= rank.fits;
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
  const ReplaySetup setup = replay_setup(profile, layout, cluster.gpu.compute_capability, order);
  const std::int64_t context = profile.context.of(cluster.gpu.compute_capability);
  const std::int64_t communicators =
      communicators_of(layout.model, layout.plan) * profile.communicator;
  const std::int64_t outside = context + communicators;
  for (std::int32_t row = 0; row < order.num_rows(); ++row) {
    ReplayResult replay = replay_row(setup, {row}, -1);
    replay.memory.fits = replay.memory.peak_reserved + outside <= report.capacity;
    if (!replay.memory.fits && replay.memory.peak_allocated + outside <= report.capacity) {
      // What is cached can be given back: the allocator retries before it fails.
      const ReplayResult tight = replay_row(setup, {row}, report.capacity - outside);
      if (!tight.out_of_memory) replay = tight;
    }
    RankMemory& memory = replay.memory;
    memory.peak_device = memory.peak_reserved + outside;
    memory.parts.communicators = communicators;
    memory.parts.context = context;
    if (layout.model.experts.count > 0)
      memory.parts.experts = expert_state_bytes(
          layout.plan,
          row_units(layout, setup.stages[static_cast<std::size_t>(row)], order.placement.stages()));
    memory.fits = memory.peak_device <= report.capacity;
    report.ranks.push_back(memory);
  }
  summarize(report);
  return report;
}

std::string profile_runtime(const Plan& plan) {
  const bool sixteen_bit_shards = plan.zero_stage == 3 && plan.precision.parameters < 4;
  return sixteen_bit_shards ? RuntimeTraits{}.name : plan.runtime.name;
}

Result<MemoryReport> predict_memory(const Layout& layout, const Cluster& cluster,
                                    const Schedule& order) {
  Result<MemoryProfile> profile = read_memory_profile(profile_runtime(layout.plan));
  if (!profile) return profile.error();
  return predict_memory(profile.value(), layout, cluster, order);
}

}  // namespace rehearse::sim
