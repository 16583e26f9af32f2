// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/confidence.h"

#include <algorithm>

#include "schedules/scenario/plan_names.h"
#include "sim/band/band.h"

namespace rehearse::sim {
namespace {

// A CPU's own kernels are measured to 2 %, but its ranks share cores and memory with each other and
// with the machine: 20 of the 24 layouts in docs/accuracy.md were within this.
constexpr double kSharedCpuBand = 0.15;

// A step whose computing is bounded by the host for more than this share of it.
constexpr double kHostBound = 0.5;
// Ranks over which ZeRO shards, beyond which its frameworks differ (docs/accuracy.md).
constexpr std::int32_t kWideShards = 128;

// Share of the compute stream's time in ops that the host issues as slowly as the device works.
double host_bound_share(const Prediction& p) {
  const Schedule& s = p.schedule;
  std::int64_t all = 0, bound = 0;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    const auto row = static_cast<std::size_t>(r);
    for (auto op = static_cast<std::size_t>(s.row_begin[row]);
         op < static_cast<std::size_t>(s.row_begin[row + 1]); ++op) {
      if (s.ops[op].stream != Stream::Compute) continue;
      const std::int64_t time = s.rows[row].multiplicity *
                                p.left_out.times_of({r}, {static_cast<std::int32_t>(op)}) *
                                (p.timeline.end[op] - p.timeline.start[op]).value;
      all += time;
      if (p.pricing.host_bound[static_cast<std::size_t>(p.pricing.table.of_op[op])]) bound += time;
    }
  }
  return all > 0 ? static_cast<double>(bound) / static_cast<double>(all) : 0;
}

// Shares of all the time that ops of the compute stream and exposed communication take.
void add_level_shares(Prediction& p) {
  const Schedule& s = p.schedule;
  std::vector<std::int64_t> times(p.pricing.rests_on.size());  // [ns over ranks] per cost
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    const std::int64_t ranks = s.rows[static_cast<std::size_t>(r)].multiplicity;
    for (std::int32_t i = s.row_begin[static_cast<std::size_t>(r)];
         i < s.row_begin[static_cast<std::size_t>(r) + 1]; ++i) {
      const auto op = static_cast<std::size_t>(i);
      const auto cost = static_cast<std::size_t>(p.pricing.table.of_op[op]);
      const bool computes = s.ops[op].stream == Stream::Compute;
      const std::int64_t time = computes ? ranks * (p.timeline.end[op] - p.timeline.start[op]).value
                                         : p.bubbles.exposed[op];
      times[cost] += p.left_out.times_of({r}, {i}) * time;
    }
  }
  RestsOn sum;
  for (std::size_t cost = 0; cost < times.size(); ++cost) {
    sum.add(p.pricing.rests_on[cost], static_cast<double>(times[cost]));
  }
  const double total = sum.sum();
  if (total <= 0) return;
  for (std::size_t l = 0; l < kNumCostLevels; ++l) p.confidence[l] = sum.level[l] / total;
  const KernelScalars& scalars = p.models->compute->scalars();
  for (std::size_t t = 0; t < kNumMeasuredTables; ++t) {
    if (sum.table[t] <= 0) continue;
    const bool products = static_cast<MeasuredTable>(t) != MeasuredTable::Collectives;
    p.tables.emplace_back(products ? scalars.gemm_tables[t].file : "collectives.json",
                          sum.table[t] / total);
  }
}

// No whole step of a CPU is among the validated ones: it is as wrong as the measurements that it
// rests on.
double cpu_error(const Prediction& p) {
  double error = 0;
  for (std::size_t l = 0; l < kNumCostLevels; ++l) {
    error += p.confidence[l] * error_band(static_cast<CostLevel>(l));
  }
  return std::max({error, kSharedCpuBand, p.scatter});
}

}  // namespace

std::string precision_name(ComputeType type) {
  const bool half = type == ComputeType::Fp16 || type == ComputeType::Bf16;
  return half ? "16 bit" : std::string(name_of(type));
}

std::string generation_text(const Gpu& gpu) {
  if (!gpu.compute_capability) return gpu.architecture;
  return gpu.architecture + " " + std::to_string(*gpu.compute_capability);
}

StepFeatures features_of(const Prediction& p, const Cluster& cluster) {
  const Plan& plan = p.plan;
  StepFeatures f{.gpu = generation_text(cluster.gpu),
                 .precision = precision_name(plan.precision.compute),
                 .runtime = plan.runtime.any_framework ? "" : plan.runtime.name,
                 .attention = std::string(name_of(plan.attention_kernel)),
                 .nic = p.gpus > cluster.gpus_per_node ? cluster.nics.kind : "",
                 .gpus = p.gpus};
  f.set(StepKind::Tensor, plan.tensor_parallel > 1);
  f.set(StepKind::Pipeline, plan.pipeline_parallel > 1);
  f.set(StepKind::Context, plan.context_parallel > 1);
  f.set(StepKind::ShardedParameters, plan.zero_stage == 3);
  f.set(StepKind::Experts, p.has_experts);
  f.set(StepKind::HostBound, host_bound_share(p) > kHostBound);
  f.set(StepKind::LearnedRouting, p.has_experts && plan.expert_routing == ExpertRouting::Uniform &&
                                      plan.expert_capacity <= 0);
  f.set(StepKind::AssumedNetwork, cluster.nics.assumed && p.gpus > cluster.gpus_per_node);
  // It reads the shapes that come ahead of what comes (Aleph Alpha's, DeepSpeed's pipelines).
  f.set(StepKind::BlockedHost, plan.pipeline_parallel > 1 && plan.runtime.serial_transfers);
  f.set(StepKind::WideShards, plan.zero_stage > 0 && plan.shards() > kWideShards);
  for (const CommunicationRow& row : p.communication) {
    if (p.step_s > 0) f.network_share += row.exposed_s / p.step_s;
  }
  f.memory_fill = static_cast<double>(p.memory.peak_device) /
                  static_cast<double>(std::max<std::int64_t>(cluster.capacity().value, 1));
  return f;
}

void add_confidence(Prediction& p, const Scenario& scenario, const Cluster& cluster,
                    const ErrorTable& errors, const std::string& without_source) {
  add_level_shares(p);
  if (cluster.calibration) p.scatter = cluster.calibration->scatter(p.gpus > 1);
  if (cluster.workers > 0) {
    p.error_band = cpu_error(p);
    p.band = even_band(p.error_band);
    return;
  }
  p.band = band_of({.features = features_of(p, cluster),
                    .given = scenario.given,
                    .assumed_share = p.confidence[static_cast<std::size_t>(CostLevel::Datasheet)],
                    .without_source = without_source},
                   errors);
  p.error_band = p.band.half_width();
}

}  // namespace rehearse::sim
