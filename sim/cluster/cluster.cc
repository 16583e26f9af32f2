// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster/cluster.h"

#include <algorithm>

namespace rehearse::sim {

BytesPerSecond Cluster::scale_up_bandwidth() const {
  return scale_up.bandwidth_per_gpu.value_or(gpu.pcie.bandwidth);
}

Bytes Cluster::capacity() const {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  // "80 GB" of a data sheet are 80 GiB of chips, of which driver and ECC keep about a hundredth.
  constexpr double kLeft = 0.99;
  const double gib = gpu.usable_memory_gib.value_or(kLeft * gpu.memory_capacity_gb);
  return {static_cast<std::int64_t>(gib * kGib)};
}

std::optional<double> Cluster::peak_flops(ComputeType type) const {
  switch (type) {
    case ComputeType::Fp32:
      return gpu.peaks.fp32_vector;
    case ComputeType::Fp16:
      return gpu.peaks.fp16;
    case ComputeType::Bf16:
      return gpu.peaks.bf16;
    case ComputeType::Fp8:
    case ComputeType::Mxfp8:
      return gpu.peaks.fp8;
    case ComputeType::Nvfp4:
      return gpu.peaks.nvfp4;
  }
  return {};
}

double Calibration::scatter(bool together) const {
  const double alone = scalar("scatter.product").value_or(0);
  return together ? std::max(alone, scalar("scatter.together").value_or(0)) : alone;
}

std::optional<double> Calibration::scalar(std::string_view name) const {
  const auto found = std::ranges::find(scalars, name, &std::pair<std::string, double>::first);
  if (found == scalars.end()) return {};
  return found->second;
}

Cluster with_domain(Cluster cluster, std::int32_t gpus) {
  const std::int32_t all = cluster.gpus_per_node;
  cluster.nics.count = (cluster.nics.count * gpus + all - 1) / all;
  cluster.gpus_per_node = gpus;
  return cluster;
}

Cluster with_places(Cluster cluster, std::int32_t ranks) {
  if (cluster.workers == 0 || ranks <= cluster.gpus_per_node) return cluster;
  const double part = static_cast<double>(cluster.gpus_per_node) / ranks;
  cluster.gpu.memory_capacity_gb *= part;
  if (cluster.gpu.usable_memory_gib) *cluster.gpu.usable_memory_gib *= part;
  cluster.gpus_per_node = ranks;
  return cluster;
}

Result<> check_gpus(const Cluster& cluster, std::int32_t gpus) {
  if (cluster.workers > 0 || gpus <= cluster.gpus_per_node || cluster.nics.count > 0) return {};
  return Error{cluster.path + ": nics: " + std::to_string(gpus) + " gpus need several nodes of " +
               std::to_string(cluster.gpus_per_node) + ", but the nodes have no nics"};
}

}  // namespace rehearse::sim
