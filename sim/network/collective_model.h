// SPDX-License-Identifier: Apache-2.0
// What the cost of a collective rests on, for one cluster: fits of measured tables, constants of
// the libraries and of links, and the cluster's own calibration. Data, read once; no formulas.
//
// The fits are scenarios/kernels/collectives.json (each with its source and its error).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/base/units.h"
#include "schedules/ir/op.h"
#include "sim/cluster/cluster.h"
#include "sim/network/nccl_tuner.h"

namespace rehearse::sim {

// t = alpha + root * sqrt(S) + f(n) S / bus_bandwidth, f the bus-bandwidth factor of the kind.
struct CollectiveFit {
  std::string system;  // which rows go together: "a100_nvswitch"
  OpKind kind = OpKind::AllReduce;
  std::int32_t ranks = 2, nodes = 1;
  double alpha = 0;                           // [s]
  double root = 0;                            // [s per sqrt(B)]
  double bus_bandwidth = 0;                   // [B/s], S -> infinity
  std::int64_t min_bytes = 0, max_bytes = 0;  // range of the data
};

// Which systems a family of fits describes.
struct CollectiveSystem {
  std::string name;
  std::string architecture;  // of the GPUs
  ScaleUpKind scale_up{};
  std::string gpu_contains;    // part of the GPU's name; empty: any
  std::string nic_kind;        // fits over several nodes: the NIC's kind; empty: any
  std::string same_as;         // system whose fits hold where this one has none
  double small_bandwidth = 0;  // [B/s] bus bandwidth below 1 MiB (LL); 0: the fits hold there too
  std::int32_t in_switch_from = 0;  // smallest group that the switch reduces (NVLS); 0: never
  double send_recv_alpha = 0;       // [s] inside a node; 0: not known
  double send_recv_bandwidth = 0;   // [B/s]
};

struct NicConstants {
  // The share of the line rate that as many groups of a node reach together.
  double fraction_of(std::int32_t groups) const {
    return one_group_fraction > 0 ? std::min(groups * one_group_fraction, achievable_fraction)
                                  : achievable_fraction;
  }
  std::string kind;                // prefix of Nics::kind; empty: any
  double achievable_fraction = 1;  // of the line rate, all groups of a node together, large sizes
  double one_group_fraction = 0;   // of the line rate, one group; 0: what all reach
  bool benchmarked = true;         // a published benchmark stands behind the fraction
  double step = -1;                // [s] one step of a multi-node collective; < 0: from the latency
};

// Scalars with a physical meaning; their JSON keys have the same names, in microseconds there.
struct CollectiveConstants {
  double call_overhead = 0;  // [s] of one call in a loop of nccl-tests, beyond the tuner's
  double step_fixed = 0;     // [s] multi-node: a step is latency_hops * NIC latency + this
  double latency_hops = 0;
  double multi_node_fixed = 0;           // [s]
  double part_alpha = 1, part_root = 1;  // all-gather, reduce-scatter: of the all-reduce's
  double send_recv_alpha = 0;            // [s] send/recv inside a node, where the system has none
  double transfer_alpha = 0;             // [s] send/recv between nodes: this + hops * NIC latency
  double transfer_latency_hops = 0;
  double transfer_nic_fraction = 1;  // of the line rate, one pair; no more than collectives reach
  double scale_up_fraction = 1;      // of the data sheet, where a node says nothing
  double pcie_fraction = 1;          // of a PCIe link, where a node says nothing
  double socket_fraction = 1;        // of a PCIe link: all GPU traffic between two sockets
  double chunk_bytes = 0;            // [B] that a ring's step passes on (Simple)
  double host_copy_alpha = 0;        // [s]
  double host_copy_fraction = 1;     // of the PCIe link
  double host_update_rate = 1;       // [B/s] of a socket that updates parameters (CPU Adam)
};

// Rates of bringing tokens to experts (sim/network/dispatch_cost.h); JSON keys as for the
// constants.
struct DispatchConstants {
  double nic_fraction = 1;                    // of the line rate
  double all_to_all_scale_up_fraction = 1;    // of the data sheet, between nodes
  double deduplicated_scale_up_fraction = 1;  // of the data sheet
  double layout = 0;                          // [s] counting what goes where, before a dispatch
};

// Everything in the file.
struct CollectiveTables {
  std::string path;
  CollectiveConstants constants;
  DispatchConstants dispatch;
  TunerTables tuner;
  std::vector<CollectiveSystem> systems;
  std::vector<CollectiveFit> fits;
  std::vector<NicConstants> nics;
};

// What of it holds for one cluster.
struct CollectiveModel {
  CollectiveConstants constants;
  DispatchConstants dispatch;
  TunerTables tuner;
  CollectiveSystem system;          // name empty: none describes this cluster
  std::vector<CollectiveFit> fits;  // of that system (first) and of same_as
  NicConstants nic;
  std::vector<CollectivePoint> measured;  // the cluster's calibration, by op, nodes, ranks, bytes

  // The share of the line rate that one pair of ranks on two nodes reaches.
  double transfer_fraction() const {
    return std::min(constants.transfer_nic_fraction, nic.achievable_fraction);
  }
};

// Errors: "FILE: KEY: what is wrong".
Result<CollectiveTables> read_collective_tables(const std::string& path);
// The file that is shipped: shipped_directory()/kernels/collectives.json.
Result<CollectiveTables> shipped_collective_tables();
CollectiveModel make_collective_model(const CollectiveTables& tables, const Cluster& cluster);

}  // namespace rehearse::sim
