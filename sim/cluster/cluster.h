// SPDX-License-Identifier: Apache-2.0
// The hardware: one node type with its GPU and links, the fabric between nodes, measured tables.
//
// A description, no model: what a transfer or a kernel costs is for collective_cost and
// compute_cost. What a file does not know (`null` or left out) is an empty optional; nothing is
// guessed here. Bandwidths are per direction [B/s], latencies one-way [us], peaks dense [FLOP/s].
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/base/throttle.h"
#include "schedules/base/units.h"
#include "schedules/scenario/plan.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/scenario.h"
#include "sim/cluster/calibration.h"
#include "sim/cluster/correction.h"

namespace rehearse::sim {

// Dense peak rates per type of the matrix products [FLOP/s]; empty: not known or not there.
struct PeakRates {
  std::optional<double> fp32_vector, tf32, fp16, bf16, fp8, nvfp4;
};

// Fractions of peak and collective figures read from measured tables (key gpu.calibration).
struct GpuCalibration {
  std::optional<double> gemm_typical_fraction, gemm_best_fraction;  // of the 16-bit peak
  std::optional<double> memory_bandwidth_fraction;
  std::optional<double> all_reduce_8_alpha_us;                  // fixed time, 8 ranks
  std::optional<BytesPerSecond> all_reduce_8_asymptotic_busbw;  // S -> infinity, 8 ranks
  std::optional<BytesPerSecond> all_reduce_8_busbw;             // at the largest measured size
  std::optional<BytesPerSecond> nvls_busbw, ring_busbw;         // with and without the switch
};

// The vendor whose collectives are NCCL's and whose GPUs have a compute capability.
inline constexpr std::string_view kNvidia = "nvidia";

struct PcieLink {
  std::int32_t generation = 0, lanes = 0;
  BytesPerSecond bandwidth;
};

struct Gpu {
  std::string name;
  std::string vendor;        // "nvidia", "amd", ...; empty: nobody said (a CPU, too)
  std::string architecture;  // a generation of scenarios/kernels/generations.json, or "other"
  std::optional<std::int32_t> compute_capability;  // NVIDIA's: 80 = sm_80; others have none
  // Types of the matrix products that it has, by ComputeType.
  std::array<bool, kComputeTypeNames.size()> multiplies{};
  std::int32_t sm_count = 0;
  double tensor_clock_mhz = 0;
  PeakRates peaks;
  double memory_capacity_gb = 0;            // the vendor's figure; see capacity_bytes
  std::optional<double> usable_memory_gib;  // what a program gets, where known
  BytesPerSecond memory_bandwidth;
  double l2_cache_mib = 0;
  double tdp_w = 0;
  PcieLink pcie;
  std::optional<BytesPerSecond> nvlink;  // all links of one GPU together (xGMI too)
  std::int32_t nvlink_generation = 0, nvlink_links = 0;
  std::optional<BytesPerSecond> c2c_to_cpu;  // Grace: the coherent link to the CPU
  bool peer_to_peer = true;
  GpuCalibration calibration;
};

enum class ScaleUpKind : std::uint8_t {
  NvSwitch,        // every pair at full rate
  FullMesh,        // direct links: bandwidth_per_pair
  HybridCubeMesh,  // DGX-1: pairs have 0, 1 or 2 links of bandwidth_per_link
  PcieTree,        // no GPU links: through PCIe switches and the host
  Torus,           // links to neighbours along `axes`, which pass on what goes further
};
// Their words in files, in the order of ScaleUpKind.
inline constexpr std::array<std::string_view, 5> kScaleUpNames{
    "nvswitch", "full_mesh", "hybrid_cube_mesh", "pcie_tree", "torus"};

struct TorusAxis {
  std::int32_t size = 1;              // GPUs along it
  BytesPerSecond bandwidth_per_link;  // to one neighbour
  bool open = false;                  // its ends are not joined
  // Links of a GPU along it: the two neighbours of a pair are one.
  std::int32_t links() const { return size > 2 && !open ? 2 : 1; }
};

struct ScaleUp {
  ScaleUpKind kind = ScaleUpKind::PcieTree;
  std::vector<TorusAxis> axes;  // of a torus; GPUs of a node are numbered along the first one first
  std::optional<BytesPerSecond> bandwidth_per_gpu;  // empty (PCIe trees): the GPU's PCIe link
  std::optional<BytesPerSecond> bandwidth_per_pair, bandwidth_per_link;
  std::int32_t switches = 0, links_per_pair = 0;
  double hop_latency_us = 0;
  std::optional<double> achievable_fraction;  // share that collectives reach at large sizes
  std::optional<double> achievable_2, achievable_4, achievable_8;  // all-reduce by ranks
  std::optional<BytesPerSecond> reference;  // what achievable_N are shares of
  bool in_network_reduction = false;        // NVLS
  bool blocking = false;
  bool peer_to_peer = true;
};

struct NodePcie {
  std::int32_t generation = 0, switches = 0, gpus_per_switch = 0, nics_per_switch = 0;
  BytesPerSecond bandwidth_per_link;  // GPU or switch up-link
  bool coherent = false;              // nvlink_c2c: bandwidth_per_link is that of one CPU
  std::int32_t gpus_per_cpu = 0;
};

struct Nics {
  std::int32_t count = 0;
  BytesPerSecond bandwidth_each;
  std::string kind;
  double one_way_latency_us = 0;
  bool gpu_direct_rdma = false;
  double gpus_per_nic = 1;        // 0.25: four NICs serve one GPU
  double one_group_fraction = 0;  // of the line rate, one communicator of a node; 0: not said
  bool assumed = false;           // nobody printed this network
};

struct Host {
  std::int32_t sockets = 1;
  double memory_gib = 0;
  std::string cpu;
  std::optional<BytesPerSecond> inter_socket;
};

// A node's local drives together, which its GPUs share.
struct Nvme {
  BytesPerSecond read{}, write{};  // reached; 0: not known
  double capacity_gb = 0;          // 0: not known
  bool known() const { return read.value > 0 && write.value > 0; }
};

enum class Topology : std::uint8_t { FatTree, RailOptimizedFatTree, ThreeLevelClos };

// The network between nodes. A cluster without one has full bisection bandwidth.
struct Fabric {
  std::string id;
  Topology topology = Topology::FatTree;
  std::int32_t levels = 2;
  std::int32_t leaf_ports = 0;  // 0: not known
  BytesPerSecond port_bandwidth;
  std::int32_t rails = 1;
  std::int32_t nodes_per_scalable_unit = 0;  // 0: not known; below it leaves are shared
  std::int32_t pod_gpus = 0;                 // 0: no pods; oversubscribed core above a pod
  double oversubscription_leaf_to_spine = 1.0;
  double oversubscription_aggregation_to_core = 1.0;
  double switch_latency_us = 0, cable_latency_us_per_hop = 0;
  double between_pods_latency_us = 0;  // on top, one way (data centres apart); 0 by default
};

struct Cluster {
  std::string path, id, name;
  Gpu gpu;
  std::int32_t gpus_per_node = 1;
  std::int32_t workers = 0;  // > 0: a CPU, whose ranks share so many threads; 0: a device per rank
  // A CPU's: into how many processes the ranks are dealt, in order, and what carries data among
  // those. Never in a file.
  std::int32_t processes = 1;
  ProcessLink between_processes = ProcessLink::None;
  Throttle throttle;  // of what crosses between them (`run --throttle`); never in a file
  ScaleUp scale_up;
  NodePcie pcie;
  Nics nics;
  Host host;
  Nvme nvme;
  std::optional<Fabric> fabric;            // empty: full bisection
  std::optional<Calibration> calibration;  // measured tables that the file names
  Correction correction;                   // by a measured step of this very cluster
  std::optional<double> price_usd_per_gpu_hour;
  std::optional<double> failures_per_million_gpu_hours;
  std::optional<BytesPerSecond> checkpoint_bandwidth;
  std::optional<double> system_power_max_w;

  // Bandwidth of one GPU's scale-up port; its PCIe link where there is no other.
  BytesPerSecond scale_up_bandwidth() const;
  bool multiplies(ComputeType type) const { return gpu.multiplies[static_cast<std::size_t>(type)]; }
  // Memory that a program can use: usable_memory_gib, else 0.99 of the vendor's "gb" as GiB.
  Bytes capacity() const;
  // Dense peak of the matrix products in `type` [FLOP/s]; empty where not known.
  // fp32 is tf32 nowhere: frameworks do not use it unless asked; fp32 is the vector rate.
  std::optional<double> peak_flops(ComputeType type) const;
};

// Reads a cluster file (or inline object) with its fabric and calibration.
// Errors: one line "FILE:LINE: KEY.PATH: what is wrong".
Result<Cluster> read_cluster(const ClusterSource& source);
// The cluster with `gpus` used of each node and their share of its NICs.
// REQUIRES: 1 <= gpus <= gpus_per_node.
Cluster with_domain(Cluster cluster, std::int32_t gpus);
// A CPU holds any number of ranks: the cluster with a place, and its part of the memory, for each
// of `ranks`. Any other cluster as it is.
Cluster with_places(Cluster cluster, std::int32_t ranks);
// Several nodes need NICs: an error where the cluster has none.
Result<> check_gpus(const Cluster& cluster, std::int32_t gpus);

}  // namespace rehearse::sim
