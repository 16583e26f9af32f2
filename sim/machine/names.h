// SPDX-License-Identifier: Apache-2.0
// What drivers and PCI call the GPUs and NICs that are shipped: scenarios/machine/names.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "sim/machine/node_topology.h"

namespace rehearse::sim {

struct GpuNames {
  std::string cluster;  // id of the shipped file whose `gpu` it is
  std::vector<std::string> names, pci_devices;
};
struct NicNames {
  std::string pci_vendor, pci_device;
  std::string infiniband, ethernet;  // its kind (nics.kind) by what it runs
};
struct PcieGeneration {
  double gt_per_s = 0;
  std::int32_t generation = 0;
  double gb_per_s_per_lane = 0;
};

struct MachineNames {
  std::vector<GpuNames> gpus;
  std::vector<NicNames> nics;
  std::vector<PcieGeneration> pcie;

  // By a driver's name (which may be cut: "NVIDIA RTX 6000 Ada Gene..."), else by the PCI device.
  // nullptr: none is shipped.
  const GpuNames* gpu(std::string_view name, std::string_view pci_device) const;
  // The kind of a NIC; empty: not known.
  std::string nic_kind(const NodeNic& nic) const;
  const PcieGeneration* generation(double gt_per_s) const;
};

// The shipped file. Errors: "FILE:LINE: KEY: what is wrong".
Result<MachineNames> shipped_machine_names();

}  // namespace rehearse::sim
