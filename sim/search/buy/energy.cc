// SPDX-License-Identifier: Apache-2.0
#include "sim/search/buy/energy.h"

#include <algorithm>
#include <cmath>

namespace rehearse::sim {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;

}  // namespace

std::optional<double> host_w(const Cluster& cluster) {
  if (!cluster.system_power_max_w || cluster.gpu.tdp_w <= 0) return {};
  const double rest = *cluster.system_power_max_w - cluster.gpus_per_node * cluster.gpu.tdp_w;
  return rest > 0 ? std::optional(rest) : std::nullopt;
}

TrainingEnergy training_energy(double gpu_w, std::optional<double> host_w, double seconds,
                               std::int32_t gpus, const Cluster& cluster, const Site& site) {
  const double nodes = std::ceil(static_cast<double>(gpus) / std::max(1, cluster.gpus_per_node));
  const double nics = nodes > 1 ? nodes * cluster.nics.count : 0;
  const auto kwh = [&](double watts) { return watts * seconds / kJoulesPerKwh; };
  TrainingEnergy energy{.gpu_kwh = kwh(gpu_w),
                        .network_kwh = kwh(site.network_w_per_nic.value * nics)};
  if (!host_w) return energy;
  energy.host_kwh = kwh(*host_w * nodes);
  const double machines = energy.gpu_kwh + *energy.host_kwh + energy.network_kwh;
  energy.facility_kwh = machines * site.pue.value;
  energy.co2_t = *energy.facility_kwh * site.co2_g_per_kwh.value * 1e-6;
  return energy;
}

}  // namespace rehearse::sim
