// SPDX-License-Identifier: Apache-2.0
// What a training run takes from the grid: GPUs as predicted, the hosts of their nodes, the network
// between these, what the building adds (PUE), and the CO2 of it.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/cluster/cluster.h"
#include "sim/search/buy/site.h"

namespace rehearse::sim {

struct TrainingEnergy {
  double gpu_kwh = 0, network_kwh = 0;
  std::optional<double> host_kwh;      // none: nobody said; then neither are those below known
  std::optional<double> facility_kwh;  // all three, times the PUE
  std::optional<double> co2_t;         // [1000 kg]
};

// A node without its GPUs [W]: the most that the whole node takes less what its GPUs can, both as
// data sheets have them. None: the file has not both.
std::optional<double> host_w(const Cluster& cluster);

// `gpu_w`: of all GPUs together while they train; failures and checkpoints are counted as training.
// `host_w`: of one node. A run on one node crosses no network.
TrainingEnergy training_energy(double gpu_w, std::optional<double> host_w, double seconds,
                               std::int32_t gpus, const Cluster& cluster, const Site& site);

}  // namespace rehearse::sim
