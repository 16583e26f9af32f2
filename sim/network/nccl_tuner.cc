// SPDX-License-Identifier: Apache-2.0
// NCCL's formulas, in the order of ncclTopoTuneModel.
#include "sim/network/nccl_tuner.h"

#include <algorithm>
#include <cmath>

namespace rehearse::sim {
namespace {

constexpr double kNever = -1;

// The last row that begins at the compute capability or below.
template <class Row>
const Row& row_of(const std::vector<Row>& rows, std::int32_t compute_capability) {
  std::size_t at = 0;
  while (at + 1 < rows.size() && rows[at + 1].from <= compute_capability) ++at;
  return rows[at];
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

double nvlink_channel_gb_per_s(const TunerTables& tables, std::int32_t compute_capability) {
  return row_of(tables.nvlinks, compute_capability).gb_per_s;
}

// n ranks, N nodes, g ranks per node, C channels, b bandwidth, S bytes.
TunerChoice tuner_time(const TunerInput& in, OpKind kind, double bytes, Algorithm algorithm,
                       Protocol protocol) {
  TunerChoice choice{.algorithm = algorithm, .protocol = protocol, .time_us = kNever};
  const bool collective = kind == OpKind::AllReduce || kind == OpKind::AllGather ||
                          kind == OpKind::ReduceScatter || kind == OpKind::Broadcast ||
                          kind == OpKind::Reduce;
  if (!collective || !enabled(in, kind, algorithm, protocol)) return choice;
  const TunerTables& tables = *in.tables;
  const TunerTables::Generation& gpu = row_of(tables.generations, in.compute_capability);
  const auto i2 = static_cast<std::size_t>(in.nodes <= 2 ? in.nodes - 1 : 2);
  // of several nodes the host's row: the second is AMD's
  const TunerTables::PerNodes& ll = (in.nodes == 1 ? gpu : tables.generations[in.amd_cpu]).ll;
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
      if (protocol == Protocol::Ll) b = std::min(ll[i2], .5 * b);
      if (protocol == Protocol::Ll128) b = std::min(.92 * b, channels * gpu.ring_ll128);
      break;
    case Algorithm::Tree:
      b = std::min(.92 * b, channels * gpu.tree[i2]);
      if (protocol == Protocol::Ll) b = std::min(b / 3.8, ll[i2]);
      if (protocol == Protocol::Ll128) {
        b = std::min(b * (in.nodes == 1 ? 7.0 / 9 : 120.0 / 128), channels * gpu.tree_ll128[i2]);
      }
      break;
    case Algorithm::Nvls:
    case Algorithm::NvlsTree: {
      const double c = in.nvls_channels > 0 ? in.nvls_channels : channels;
      const double intra = in.channel_nvls > 0 ? in.channel_nvls : in.channel_intra;
      if (c < 2 || gpu.nvls_efficiency == 0) return choice;
      b = intra * gpu.nvls_efficiency * (c - 1) / c * (all_reduce ? 2 : (g - 1) / g);
      const double outside = in.channel_inter * channels / c;
      if (algorithm == Algorithm::NvlsTree) {
        b = std::min({b, outside * (in.nodes <= 2 ? 2 : 1), gpu.nvls_tree[i2]});
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
  double inside = (in.nvlink ? tables.nvlink : tables.pcie)[a][p];
  const std::size_t net_row = static_cast<std::size_t>(
      in.nodes == in.ranks && algorithm == Algorithm::Ring ? Algorithm::Tree : algorithm);
  const double outside = tables.network[net_row][p] + in.nic_latency_us * (simple ? 2 : 1);
  const double hops = std::floor(std::log2(nodes));
  double latency = tables.call[a][p];
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
    if (index < tables.tree_correction[p].size()) b *= tables.tree_correction[p][index];
  }
  if (algorithm == Algorithm::Ring && simple && all_reduce && in.nodes > 1 &&
      bytes / (channels * n) >= 64) {
    latency *= gpu.ring_over_nodes;
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
