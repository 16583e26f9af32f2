// SPDX-License-Identifier: Apache-2.0
// What one node says of its own wiring, whoever said it: `nvidia-smi topo -m` (topology_matrix.h)
// or NCCL (nccl_topology.h). Facts only; what kind of node they make is machine_file's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rehearse::sim {

// A network port. What was not said is empty.
struct NodeNic {
  std::string name;                   // "mlx5_0"
  std::optional<double> gbit_per_s;   // one direction
  std::string pci_vendor, pci_device;  // "0x15b3", "0x1021"
  std::optional<bool> infiniband;      // else Ethernet
  std::optional<bool> gpu_direct;      // GPUDirect RDMA
  std::int32_t pcie_switch = -1;       // that it shares with a GPU; -1: none
};

struct NodeTopology {
  std::int32_t gpus = 0;
  std::vector<std::string> gpu_names;  // as a driver says them, each once
  std::string gpu_pci_device;          // "0x2330"
  std::string gpu_pci_vendor;          // "0x10de"
  std::optional<std::int32_t> compute_capability;
  std::optional<double> gpu_pcie_gt_per_s;
  std::optional<std::int32_t> gpu_pcie_lanes;
  // Links (NVLink, xGMI) that a GPU has to another one: (gpus, gpus), row by row. A matrix of
  // nvidia-smi counts the same links for every pair where a switch joins them. Empty: nobody said.
  std::vector<std::int32_t> links;
  std::vector<std::int32_t> to_switch;    // (gpus), to NVSwitches; empty: nobody said
  std::vector<std::int32_t> pcie_switch;  // (gpus): which PCIe switch a GPU is behind; -1: none
  std::int32_t pcie_switches = 0;
  std::vector<std::int32_t> numa;  // of the GPUs, each node once
  std::string cpu;
  std::vector<NodeNic> nics;

  std::int32_t links_between(std::int32_t a, std::int32_t b) const {
    return links.empty() ? 0 : links[static_cast<std::size_t>(a * gpus + b)];
  }
};

}  // namespace rehearse::sim
