// SPDX-License-Identifier: Apache-2.0
// NCCL's tables and formulas, in the order of ncclTopoTuneModel.
#include "sim/network/nccl_tuner.h"

#include <algorithm>
#include <cmath>

namespace rehearse::sim {
namespace {

using PerProtocol = std::array<double, kNumProtocols>;              // LL, LL128, Simple
using PerAlgorithm = std::array<PerProtocol, kNumTunerAlgorithms>;  // Tree Ring NVLS NVLSTree PAT
using PerNodes = std::array<double, 3>;                             // 1, 2, more nodes
constexpr double kNever = -1;

// Latencies [us]: of a call, and of one step over a kind of link.
constexpr PerAlgorithm kBase{{{6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}};
constexpr PerAlgorithm kNvlink{{{.6, 1.25, 4}, {.6, 1.9, 3.4}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4}}};
constexpr PerAlgorithm kPci{{{1, 1.9, 4}, {1, 2.5, 5.7}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4}}};
constexpr PerAlgorithm kNet{{{5, 8.5, 14}, {2.7, 4, 14}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};

// Bandwidths [GB/s] by generation: Volta, Ampere, Hopper, Blackwell.
constexpr std::array<PerNodes, 4> kLlMax{
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<double, 4> kRingLl128{20, 20, 36.7, 40};
constexpr std::array<PerNodes, 4> kTreeLl128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<PerNodes, 4> kTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<PerNodes, 4> kNvlsTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};
constexpr std::array<double, 4> kNvlsEfficiency{0, 0, .85, .74};

// Correction of the tree's bandwidth by log2(bytes / 64).
constexpr std::array<std::array<double, 23>, kNumProtocols> kTreeCorrection{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

std::size_t generation(std::int32_t compute_capability) {
  return compute_capability >= 100 ? 3 : compute_capability >= 90 ? 2 : compute_capability >= 80;
}

bool enabled(const TunerInput& in, OpKind kind, Algorithm algorithm, Protocol protocol) {
  const bool all_reduce = kind == OpKind::AllReduce;
  const bool parts = kind == OpKind::AllGather || kind == OpKind::ReduceScatter;
  switch (algorithm) {
    case Algorithm::Ring:
      return true;
    case Algorithm::Tree:
      return all_reduce;
    case Algorithm::Nvls:
      return protocol == Protocol::Simple && in.nvls && in.nodes == 1 && (all_reduce || parts);
    case Algorithm::NvlsTree:
      return protocol == Protocol::Simple && in.nvls && in.nodes > 1 && all_reduce;
    case Algorithm::Pat:  // one GPU per node, as NCCL has it on by default
      return protocol == Protocol::Simple && parts && in.nodes == in.ranks && in.nodes > 1;
    case Algorithm::Pairwise:
      return false;
  }
  return false;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  constexpr std::array<std::string_view, kNumTunerAlgorithms + 1> kNames{
      "tree", "ring", "nvls", "nvls_tree", "pat", "pairwise"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(Protocol protocol) {
  constexpr std::array<std::string_view, kNumProtocols> kNames{"ll", "ll128", "simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

double nvlink_channel_gb_per_s(std::int32_t compute_capability) {
  if (compute_capability >= 100) return 40.1;
  if (compute_capability >= 90) return 20.6;
  return compute_capability == 86 || compute_capability == 89 ? 12.0 : 20.0;
}

// Letters as in cost-models: n ranks, N nodes, g ranks per node, C channels, b bandwidth, S bytes.
TunerChoice tuner_time(const TunerInput& in, OpKind kind, double bytes, Algorithm algorithm,
                       Protocol protocol) {
  TunerChoice choice{.algorithm = algorithm, .protocol = protocol, .time_us = kNever};
  const bool collective = kind == OpKind::AllReduce || kind == OpKind::AllGather ||
                          kind == OpKind::ReduceScatter || kind == OpKind::Broadcast ||
                          kind == OpKind::Reduce;
  if (!collective || !enabled(in, kind, algorithm, protocol)) return choice;
  const std::size_t ci = generation(in.compute_capability);
  const auto i2 = static_cast<std::size_t>(in.nodes <= 2 ? in.nodes - 1 : 2);
  const std::size_t i1 = in.nodes == 1 ? ci : in.amd_cpu;  // several nodes: the host's row
  const auto a = static_cast<std::size_t>(algorithm), p = static_cast<std::size_t>(protocol);
  const bool simple = protocol == Protocol::Simple;
  const bool all_reduce = kind == OpKind::AllReduce;
  const bool parts = kind == OpKind::AllGather || kind == OpKind::ReduceScatter;
  const double n = in.ranks, nodes = in.nodes, g = std::ceil(n / nodes), channels = in.channels;
  const double steps = all_reduce ? 2 * (n - 1) : parts ? n - 1 : n;

  // 1 bandwidth
  double b = channels * (in.nodes <= 2 ? in.channel_intra : in.channel_inter);
  switch (algorithm) {
    case Algorithm::Ring:
      if (protocol == Protocol::Ll) b = std::min(kLlMax[i1][i2], .5 * b);
      if (protocol == Protocol::Ll128) b = std::min(.92 * b, channels * kRingLl128[ci]);
      break;
    case Algorithm::Tree:
      b = std::min(.92 * b, channels * kTree[ci][i2]);
      if (protocol == Protocol::Ll) b = std::min(b / 3.8, kLlMax[i1][i2]);
      if (protocol == Protocol::Ll128) {
        b = std::min(b * (in.nodes == 1 ? 7.0 / 9 : 120.0 / 128), channels * kTreeLl128[ci][i2]);
      }
      break;
    case Algorithm::Nvls:
    case Algorithm::NvlsTree: {
      const double c = in.nvls_channels > 0 ? in.nvls_channels : channels;
      const double intra = in.channel_nvls > 0 ? in.channel_nvls : in.channel_intra;
      if (c < 2 || kNvlsEfficiency[ci] == 0) return choice;
      b = intra * kNvlsEfficiency[ci] * (c - 1) / c * (all_reduce ? 2 : (g - 1) / g);
      const double outside = in.channel_inter * channels / c;
      if (algorithm == Algorithm::NvlsTree) {
        b = std::min({b, outside * (in.nodes <= 2 ? 2 : 1), kNvlsTree[ci][i2]});
      }
      b *= c;
      break;
    }
    case Algorithm::Pat:
      b *= .75;
      break;
    case Algorithm::Pairwise:
      return choice;
  }
  // 2 to algorithm bandwidth
  const bool around = algorithm == Algorithm::Ring || algorithm == Algorithm::Nvls ||
                      algorithm == Algorithm::NvlsTree;
  if (algorithm == Algorithm::Ring || (around && !parts)) {
    b *= n / steps;
  } else if (!parts) {
    b *= .5;
  }
  // 3 latency
  double inside = (in.nvlink ? kNvlink : kPci)[a][p];
  const std::size_t net_row = static_cast<std::size_t>(
      in.nodes == in.ranks && algorithm == Algorithm::Ring ? Algorithm::Tree : algorithm);
  const double outside = kNet[net_row][p] + in.nic_latency_us * (simple ? 2 : 1);
  const double hops = std::floor(std::log2(nodes));
  double latency = kBase[a][p];
  switch (algorithm) {
    case Algorithm::Ring:
      if (all_reduce || parts) {
        if (in.nodes > 1) inside = std::max(inside, (in.amd_cpu ? 2.0 : 1.0) * (simple ? 3 : 1));
        const double between = in.nodes == 1 ? 0 : (all_reduce ? 2 : 1) * (nodes - 1);
        latency += (steps - between) * inside + between * outside;
      } else {
        latency += inside;
      }
      break;
    case Algorithm::Tree:
      latency += 2 * ((g - 1) * inside + hops * outside);
      break;
    case Algorithm::Nvls:
      latency = inside + (in.nodes > 1 ? outside : 0);
      break;
    case Algorithm::NvlsTree:
      latency += inside + 2 * hops * outside;
      break;
    case Algorithm::Pat:
      latency += hops * outside / 3.5 + 2.8 * n;
      break;
    case Algorithm::Pairwise:
      break;
  }
  // 4 per size
  if (algorithm == Algorithm::Tree && bytes >= 64) {
    const auto index = static_cast<std::size_t>(std::log2(bytes / 64));
    if (index < kTreeCorrection[p].size()) b *= kTreeCorrection[p][index];
  }
  if (algorithm == Algorithm::Ring && simple && all_reduce && in.nodes > 1 &&
      bytes / (channels * n) >= 64) {
    latency *= in.compute_capability < 80 ? 1.9 : 1.4;
  }
  choice.time_us = latency + bytes / (1e3 * b);
  return choice;
}

TunerChoice choose(const TunerInput& in, OpKind kind, double bytes) {
  TunerChoice best{.time_us = kNever};
  for (std::size_t a = 0; a < kNumTunerAlgorithms; ++a) {
    for (std::size_t p = 0; p < kNumProtocols; ++p) {
      const TunerChoice choice =
          tuner_time(in, kind, bytes, static_cast<Algorithm>(a), static_cast<Protocol>(p));
      if (choice.time_us < 0) continue;
      if (best.time_us < 0 || choice.time_us < best.time_us) best = choice;
    }
  }
  return best;
}

}  // namespace rehearse::sim
