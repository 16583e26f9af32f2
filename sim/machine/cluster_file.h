// SPDX-License-Identifier: Apache-2.0
// A cluster file (docs/add_a_cluster.md) from what a machine says of itself.
//
// The GPU is the shipped one that its name or PCI device belongs to. What else a node of this GPU
// and these very links has (efficiency and latency of its switch) is taken from the same file, and
// said. Everything that nobody said is null, and is listed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "sim/machine/nccl_tests_log.h"
#include "sim/machine/node_topology.h"

namespace rehearse::sim {

// What a machine said, from one or several sources. REQUIRES of `make_cluster_file`: at least one.
struct MachineReport {
  std::optional<NodeTopology> matrix;  // nvidia-smi
  std::optional<NodeTopology> nccl;
  std::vector<NcclTestsLog> logs;
  std::optional<std::int32_t> sockets;  // of this machine; files do not say it
  std::optional<double> host_memory_gib;
  std::string cpu;
  std::vector<std::string> sources;  // for the file: "nvidia-smi topo -m: topo.txt"
};

struct ClusterFile {
  std::string text;                  // JSON
  std::string name;                  // "8 x NVIDIA H100 80GB HBM3"
  std::string gpu_from;              // "dgx-h100"; empty: no shipped GPU is meant
  std::vector<std::string> unknown;  // keys that are null: "nics.one_way_latency_us"
  std::vector<std::string> notes;    // what the file cannot say, or takes from elsewhere
  std::string missing;  // why it is no cluster yet, in the reader's words; empty: it is one
};

// Errors: sources that contradict each other, or say of no GPU.
Result<ClusterFile> make_cluster_file(const MachineReport& machine, const std::string& id);

}  // namespace rehearse::sim
