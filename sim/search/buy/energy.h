// SPDX-License-Identifier: Apache-2.0
// What a training run takes from the grid: GPUs as predicted, the rest of the nodes, what the
// building adds (PUE), and the CO2 of it.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/cluster/cluster.h"

namespace rehearse::sim {

struct EnergyTerms {
  double pue = 1;                           // of the building: all energy over that of the machines
  std::optional<double> node_w;             // host and network of a node; none: the cluster file's
  std::optional<double> co2_g_per_kwh;      // of the grid
};

struct TrainingEnergy {
  double gpu_kwh = 0;
  std::optional<double> host_kwh;      // host and network of all nodes; none: nobody said
  std::optional<double> facility_kwh;  // all of it times the PUE
  std::optional<double> co2_t;         // [1000 kg]
};

// Host, switches and network of a node [W]: the most that the whole node takes less what its GPUs
// do, both as data sheets have them. None: the file has not both.
std::optional<double> rest_of_node_w(const Cluster& cluster);

// `gpu_w`: of all GPUs together while they train; failures and checkpoints are counted as training.
TrainingEnergy training_energy(double gpu_w, double seconds, std::int32_t gpus,
                               const Cluster& cluster, const EnergyTerms& terms);

}  // namespace rehearse::sim
