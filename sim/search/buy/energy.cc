// SPDX-License-Identifier: Apache-2.0
#include "sim/search/buy/energy.h"

namespace rehearse::sim {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;

}  // namespace

std::optional<double> rest_of_node_w(const Cluster& cluster) {
  if (!cluster.system_power_max_w || cluster.gpu.tdp_w <= 0) return {};
  const double rest = *cluster.system_power_max_w - cluster.gpus_per_node * cluster.gpu.tdp_w;
  return rest > 0 ? std::optional(rest) : std::nullopt;
}

TrainingEnergy training_energy(double gpu_w, double seconds, std::int32_t gpus,
                               const Cluster& cluster, const EnergyTerms& terms) {
  TrainingEnergy energy{.gpu_kwh = gpu_w * seconds / kJoulesPerKwh};
  const std::optional<double> node_w = terms.node_w ? terms.node_w : rest_of_node_w(cluster);
  if (!node_w) return energy;
  const double nodes = static_cast<double>(gpus) / cluster.gpus_per_node;
  energy.host_kwh = *node_w * nodes * seconds / kJoulesPerKwh;
  energy.facility_kwh = (energy.gpu_kwh + *energy.host_kwh) * terms.pue;
  if (terms.co2_g_per_kwh) energy.co2_t = *energy.facility_kwh * *terms.co2_g_per_kwh * 1e-6;
  return energy;
}

}  // namespace rehearse::sim
