// SPDX-License-Identifier: Apache-2.0
// Ranks to blocks of GPUs, and what the links of the blocks carry.
#include "sim/network/topology.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace rehearse::sim {
namespace {

std::int32_t ceil_div(std::int32_t a, std::int32_t b) {
  return (a + b - 1) / b;
}

constexpr std::array<std::string_view, kNumLinkKinds> kLinkNames{
    "scale_up", "torus", "pcie", "socket", "nic", "leaf", "pod"};
}  // namespace

std::string_view name_of(LinkKind kind) {
  return kLinkNames[static_cast<std::size_t>(kind)];
}

std::string name_of(const Link& link) {
  const std::string kind(name_of(link.kind));
  if (link.kind != LinkKind::Torus) return kind + (link.outward ? " out" : " in");
  return kind + " axis " + std::to_string(link.axis) + " of gpu " + std::to_string(link.gpu) +
         (link.outward ? " forward" : " back");
}

LinkKinds kinds_of(std::span<const LinkUse> uses) {
  LinkKinds kinds{};
  for (const LinkUse& use : uses) {
    if (use.ring > 0) kinds[static_cast<std::size_t>(use.kind)] = true;
  }
  return kinds;
}

Network::Network(const Cluster& cluster, const CollectiveModel& model, const Plan& plan,
                 std::span<const RankClassInfo> rows, bool all_replicas)
    : cluster_(&cluster), model_(&model), whole_(plan), mesh_(plan) {
  nodes_ = ceil_div(whole_.ranks(), cluster.gpus_per_node);
  add_node_cuts();
  add_fabric_cuts();
  if (cluster.scale_up.kind == ScaleUpKind::Torus) torus_.emplace(cluster.scale_up.axes);
  const std::int32_t per_position = whole_.ranks() / whole_.size(Axis::Pipeline);
  const bool alike = std::ranges::all_of(
      rows, [&](const RankClassInfo& row) { return row.multiplicity >= per_position; });
  if (alike && !all_replicas && cluster.processes <= 1) leave_out_replicas(plan);
  place_rows(rows);
  // The ports: one resource pair per row, since a GPU belongs to one row.
  for (std::int32_t row = 0; row < num_rows(); ++row) {
    links_.push_back({LinkKind::Port, true, {ring_bandwidth(cluster.gpus_per_node)}});
    links_.push_back({LinkKind::Port, false, {ring_bandwidth(cluster.gpus_per_node)}});
  }
  for (Cut& cut : cuts_) number_links(cut);
  if (torus_) number_torus_links();
}

void Network::leave_out_replicas(const Plan& plan) {
  constexpr std::int64_t kPeriodsKept = 3;  // and what is left of a fourth
  std::int64_t blocks = cluster_->gpus_per_node;
  for (const Cut& cut : cuts_) {
    if (blocks <= whole_.ranks()) blocks = std::lcm(blocks, std::int64_t{cut.block});
  }
  // Replicas after which a stride has gone through whole units.
  const auto after = [](std::int64_t unit, std::int64_t stride) {
    return unit / std::gcd(unit, stride);
  };
  const Folded& experts = whole_.folded_size();
  std::int64_t period = after(blocks, whole_.stride(Axis::Data));
  period = std::lcm(period, after(std::int64_t{experts.tensor} * experts.expert,
                                  whole_.stride_in_position(Axis::Data)));
  if (whole_.shards() < plan.replicas()) {
    period = std::lcm(period, after(whole_.shards(), whole_.size(Axis::Context)));
  }
  const std::int64_t replicas = whole_.size(Axis::Data), more = replicas / period - kPeriodsKept;
  if (more <= 0) return;
  period_ = static_cast<std::int32_t>(period);
  periods_left_out_ = static_cast<std::int32_t>(more);
  Plan shorter = plan;
  shorter.data_parallel -= period_ * periods_left_out_;
  mesh_ = Mesh(shorter);
}

void Network::place_rows(std::span<const RankClassInfo> rows) {
  const std::int32_t replicas = mesh_.size(Axis::Data);
  if (rows.empty()) {
    for (std::int32_t p = 0; p < mesh_.size(Axis::Pipeline); ++p) {
      position_.push_back(p);
      data_begin_.push_back(0);
      data_end_.push_back(replicas);
    }
  }
  const std::int32_t per_position = whole_.ranks() / whole_.size(Axis::Pipeline);
  for (const RankClassInfo& row : rows) {
    const bool whole = row.multiplicity >= per_position;  // whatever its data range says
    position_.push_back(row.position.value);
    const std::int32_t context = mesh_.size(Axis::Context);  // a row's range is of dp and cp
    data_begin_.push_back(whole ? 0 : std::clamp(row.data_begin / context, 0, replicas));
    data_end_.push_back(whole ? replicas : std::clamp(row.data_end / context, 0, replicas));
  }
  row_of_rank_.assign(static_cast<std::size_t>(mesh_.ranks()), -1);
  row_begin_.push_back(0);
  for (std::size_t row = 0; row < position_.size(); ++row) {
    for (std::int32_t d = data_begin_[row]; d < data_end_[row]; ++d) {
      for (std::int32_t c = 0; c < mesh_.size(Axis::Context); ++c) {
        for (std::int32_t t = 0; t < mesh_.size(Axis::Tensor); ++t) {
          const Rank rank = mesh_.rank({t, c, d, position_[row]});
          row_ranks_.push_back(rank.value);
          row_of_rank_[rank.index()] = static_cast<std::int32_t>(row);
        }
      }
    }
    row_begin_.push_back(static_cast<std::int32_t>(row_ranks_.size()));
  }
}

// Blocks that hold the same rows in the same numbers are equal: they share one resource pair.
void Network::number_links(Cut& cut) {
  std::map<std::vector<std::int32_t>, std::int32_t> resource_of_content;
  std::vector<std::int32_t> content, previous;
  for (std::int32_t first = 0; first < mesh_.ranks(); first += cut.block) {
    const std::int32_t end = std::min(first + cut.block, mesh_.ranks());
    content.assign(row_of_rank_.begin() + first, row_of_rank_.begin() + end);
    std::sort(content.begin(), content.end());
    if (!cut.resource_of.empty() && content == previous) {  // neighbours are often equal
      cut.resource_of.push_back(cut.resource_of.back());
      continue;
    }
    previous = content;
    const auto next = static_cast<std::int32_t>(links_.size());
    const auto [at, fresh] = resource_of_content.try_emplace(content, next);
    if (fresh) {
      links_.push_back({cut.kind, true, {cut.capacity}});
      links_.push_back({cut.kind, false, {cut.capacity}});
    }
    cut.resource_of.push_back(at->second);
  }
}

// Nodes that hold the same rows on the same places are equal, and so are links of one node that a
// shift of the torus brings onto one another with all that stands on it.
void Network::number_torus_links() {
  std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> resources_of_content;
  const std::int32_t g = cluster_->gpus_per_node;
  for (std::int32_t first = 0; first < mesh_.ranks(); first += g) {
    std::vector<std::int32_t> content(static_cast<std::size_t>(torus_->num_chips()), -1);
    const std::int32_t end = std::min(first + g, mesh_.ranks());
    std::copy(row_of_rank_.begin() + first, row_of_rank_.begin() + end, content.begin());
    std::vector<std::int32_t>& resources = resources_of_content[content];
    for (const std::int32_t least :
         resources.empty() ? torus_->equal_links(content) : std::vector<std::int32_t>{}) {
      const auto own = static_cast<std::int32_t>(resources.size());
      if (least < own) {  // its equal has its resource already
        resources.push_back(resources[static_cast<std::size_t>(least)]);
        continue;
      }
      resources.push_back(static_cast<std::int32_t>(links_.size()));
      const std::int32_t axis = torus_->axis_of(own);
      const double rate = torus_->axis(axis).bandwidth_per_link.value;
      links_.push_back({.kind = LinkKind::Torus,
                        .outward = Torus::is_forward(own),
                        .capacity = {rate * scale_up_fraction()},
                        .axis = axis,
                        .gpu = torus_->chip_of(own)});
    }
    torus_resource_.insert(torus_resource_.end(), resources.begin(), resources.end());
  }
}

void Network::add_node_cuts() {
  const Cluster& c = *cluster_;
  const CollectiveConstants& k = model_->constants;
  const bool through_pcie = c.scale_up.kind == ScaleUpKind::PcieTree;
  const double pcie = c.pcie.bandwidth_per_link.value > 0 ? c.pcie.bandwidth_per_link.value
                                                          : c.gpu.pcie.bandwidth.value;
  const std::int32_t below = c.pcie.coherent ? c.pcie.gpus_per_cpu : c.pcie.gpus_per_switch;
  add_cut(LinkKind::Pcie, std::max(below, 1), pcie * k.pcie_fraction, through_pcie && below > 1);
  if (through_pcie && c.host.sockets > 1 && c.gpus_per_node > 1) {
    const double socket =
        c.host.inter_socket ? c.host.inter_socket->value : pcie * k.socket_fraction;
    add_cut(LinkKind::Socket, ceil_div(c.gpus_per_node, c.host.sockets), socket, true);
  }
  // NIC ports: what one GPU has where there are at least as many NICs, else the GPUs that share
  // one.
  const std::int32_t nics = std::max(c.nics.count, 1);
  const std::int32_t ports = std::min(nics, c.gpus_per_node);
  const double rate = c.nics.bandwidth_each.value * nics / ports * model_->nic.achievable_fraction;
  add_cut(LinkKind::Nic, ceil_div(c.gpus_per_node, ports), rate, true);
}

void Network::add_fabric_cuts() {
  if (!cluster_->fabric) return;
  const Fabric& fabric = *cluster_->fabric;
  const std::int32_t g = cluster_->gpus_per_node;
  const double node = cluster_->nics.bandwidth_each.value * std::max(cluster_->nics.count, 1) *
                      model_->nic.achievable_fraction;
  const double leaf = fabric.oversubscription_leaf_to_spine;
  if (leaf > 1) {
    std::int32_t nodes = fabric.nodes_per_scalable_unit;
    if (nodes <= 0) {  // down-ports of a leaf: o of o + 1; a rail's leaf takes one NIC per node
      const double down = fabric.leaf_ports * leaf / (1 + leaf);
      const std::int32_t nics_on_leaf =
          ceil_div(std::max(cluster_->nics.count, 1), std::max(fabric.rails, 1));
      nodes = std::max(1, static_cast<std::int32_t>(down) / nics_on_leaf);
    }
    add_cut(LinkKind::Leaf, nodes * g, nodes * node / leaf, true);
  }
  const double core = fabric.oversubscription_aggregation_to_core;
  if (fabric.pod_gpus > 0 && (core > 1 || fabric.between_pods_latency_us > 0)) {
    add_cut(LinkKind::Pod, fabric.pod_gpus, node * fabric.pod_gpus / g / std::max(core, 1.0), true);
  }
}

std::span<const std::int32_t> Network::ranks_of(RankClass row) const {
  const auto begin = static_cast<std::size_t>(row_begin_[row.index()]);
  return std::span{row_ranks_}.subspan(
      begin, static_cast<std::size_t>(row_begin_[row.index() + 1]) - begin);
}

double Network::scale_up_fraction() const {
  return cluster_->scale_up.achievable_fraction.value_or(model_->constants.scale_up_fraction);
}

double Network::ring_bandwidth(std::int32_t members) const {
  const ScaleUp& up = cluster_->scale_up;
  const double fraction = scale_up_fraction();
  const double port = cluster_->scale_up_bandwidth().value;
  switch (up.kind) {
    case ScaleUpKind::NvSwitch:
    case ScaleUpKind::Torus:  // all links of a GPU; which of them a ring has, its path says
      return port * fraction;
    case ScaleUpKind::FullMesh: {  // n - 1 disjoint rings use every pair's links
      const double pair = up.bandwidth_per_pair ? up.bandwidth_per_pair->value : port;
      return std::min(pair * std::max(members - 1, 1), port) * fraction;
    }
    case ScaleUpKind::HybridCubeMesh:  // the number of rings that fit is not monotonic: measured
      for (const CollectiveFit& fit : model_->fits) {
        if (fit.kind == OpKind::AllReduce && fit.ranks == members && fit.nodes == 1) {
          return fit.bus_bandwidth;
        }
      }
      return pair_bandwidth();
    case ScaleUpKind::PcieTree:
      // A file that gives a bandwidth for GPUs without links means what they reach.
      return up.bandwidth_per_gpu ? port : port * model_->constants.pcie_fraction;
  }
  return port;
}

double Network::pair_bandwidth() const {
  if (model_->system.send_recv_bandwidth > 0) return model_->system.send_recv_bandwidth;
  const ScaleUp& up = cluster_->scale_up;
  if (up.kind == ScaleUpKind::HybridCubeMesh && up.bandwidth_per_link) {
    return up.bandwidth_per_link->value * scale_up_fraction();
  }
  return ring_bandwidth(2);
}

}  // namespace rehearse::sim
