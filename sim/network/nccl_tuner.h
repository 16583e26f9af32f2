// SPDX-License-Identifier: Apache-2.0
// NCCL's tuning model: which algorithm and protocol it would choose for a collective.
//
// Source: NVIDIA/nccl src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime) at 5067397c,
// with the numbers of that file (`tuner` in scenarios/kernels/collectives.json). A selector, not a
// predictor: its times are NCCL's own and optimistic below 64 MiB (measured: docs/network.md). What
// depends on the machine (channels, bandwidths) comes in TunerInput.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/ir/op.h"

namespace rehearse::sim {

enum class Algorithm : std::uint8_t { Tree, Ring, Nvls, NvlsTree, Pat, Pairwise };
inline constexpr std::size_t kNumTunerAlgorithms = 5;  // Pairwise is send/recv, not tuned
enum class Protocol : std::uint8_t { Ll, Ll128, Simple };
inline constexpr std::size_t kNumProtocols = 3;
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);

// NCCL's numbers.
struct TunerTables {
  using PerProtocol = std::array<double, kNumProtocols>;
  using PerAlgorithm = std::array<PerProtocol, kNumTunerAlgorithms>;
  using PerNodes = std::array<double, 3>;  // 1, 2, more nodes

  PerAlgorithm call{}, nvlink{}, pcie{}, network{};  // [us] of a call; of a step over such a link
  struct Generation {
    std::int32_t from = 0;  // compute capability
    double ring_ll128 = 0, nvls_efficiency = 0;
    double ring_over_nodes = 1;  // of the latency of a large all-reduce, Simple
    PerNodes ll{}, tree_ll128{}, tree{}, nvls_tree{};  // [GB/s] at most
  };
  std::vector<Generation> generations;  // ascending from 0; all have at least two
  std::array<std::array<double, 23>, kNumProtocols> tree_correction{};  // by log2(bytes / 64)
  struct Nvlink {
    std::int32_t from = 0;  // compute capability
    double gb_per_s = 0;    // of one link
  };
  std::vector<Nvlink> nvlinks;  // ascending from 0
};

struct TunerInput {
  const TunerTables* tables = nullptr;
  std::int32_t ranks = 1, nodes = 1;
  std::int32_t compute_capability = 80;
  bool nvlink = true;  // inside the node; else PCIe
  bool amd_cpu = false;
  std::int32_t channels = 0;       // C of the search
  double channel_intra = 0;        // GB/s per channel inside a node
  double channel_inter = 0;        // GB/s per channel between nodes
  double nic_latency_us = 0;       // latencyInter
  bool nvls = false;               // the switch reduces
  std::int32_t nvls_channels = 0;  // of the switch's own graph; 0: as above
  double channel_nvls = 0;         // GB/s per channel of it; 0: as above
};

struct TunerChoice {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  double time_us = -1;  // NCCL's estimate; < 0: the combination is not enabled
};

// What NCCL takes for one NVLink of a generation [GB/s].
double nvlink_channel_gb_per_s(const TunerTables& tables, std::int32_t compute_capability);

// Estimate for one combination; time_us < 0 where NCCL would not consider it.
// `kind`: AllReduce, AllGather, ReduceScatter, Broadcast, Reduce.
TunerChoice tuner_time(const TunerInput& input, OpKind kind, double bytes, Algorithm algorithm,
                       Protocol protocol);
// The fastest enabled combination. REQUIRES: ranks >= 2, channels >= 1, tables as read.
TunerChoice choose(const TunerInput& input, OpKind kind, double bytes);

}  // namespace rehearse::sim
