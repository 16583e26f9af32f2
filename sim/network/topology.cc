// SPDX-License-Identifier: Apache-2.0
// Ranks to blocks of GPUs, groups of ranks to loads on the blocks' links.
#include "sim/network/topology.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "schedules/ranks/group_key.h"

namespace rehearse::sim {
namespace {

std::int32_t ceil_div(std::int32_t a, std::int32_t b) {
  return (a + b - 1) / b;
}

constexpr std::array<std::string_view, kNumLinkKinds> kLinkNames{"scale_up", "pcie", "socket",
                                                                 "nic",      "leaf", "pod"};
}  // namespace

std::string_view name_of(LinkKind kind) {
  return kLinkNames[static_cast<std::size_t>(kind)];
}

LinkKinds kinds_of(std::span<const LinkUse> uses) {
  LinkKinds kinds{};
  for (const LinkUse& use : uses) {
    if (use.ring > 0) kinds[static_cast<std::size_t>(use.kind)] = true;
  }
  return kinds;
}

// What a row's ranks put on the links of one level, per byte: one entry per instance and block.
// Sparse, because a row touches few of the blocks of a large machine.
struct Network::Loads {
  struct Entry {
    std::int32_t block = 0;
    double ring = 0, pairwise = 0;
  };
  std::vector<Entry> entries;

  // Sums the entries of each block; afterwards blocks are ascending and there once.
  void merge() {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.block < b.block; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (kept > 0 && entries[kept - 1].block == entries[i].block) {
        entries[kept - 1].ring += entries[i].ring;
        entries[kept - 1].pairwise += entries[i].pairwise;
      } else {
        entries[kept++] = entries[i];
      }
    }
    entries.resize(kept);
  }
  // The larger of the two on each block. REQUIRES: both merged.
  void take_larger(const Loads& other) {
    for (const Entry& theirs : other.entries) {
      const auto mine = std::ranges::lower_bound(entries, theirs.block, {}, &Entry::block);
      if (mine == entries.end() || mine->block != theirs.block) {
        entries.insert(mine, theirs);
      } else {
        mine->ring = std::max(mine->ring, theirs.ring);
        mine->pairwise = std::max(mine->pairwise, theirs.pairwise);
      }
    }
  }
};

Network::Network(const Cluster& cluster, const CollectiveModel& model, const Plan& plan,
                 std::span<const RankClassInfo> rows)
    : cluster_(&cluster), model_(&model), mesh_(plan), shards_(plan.shards()) {
  nodes_ = ceil_div(mesh_.ranks(), cluster.gpus_per_node);
  place_rows(rows);
  // The ports: one resource pair per row, since a GPU belongs to one row.
  for (std::int32_t row = 0; row < num_rows(); ++row) {
    links_.push_back({LinkKind::Port, true, {ring_bandwidth(cluster.gpus_per_node)}});
    links_.push_back({LinkKind::Port, false, {ring_bandwidth(cluster.gpus_per_node)}});
  }
  add_node_cuts();
  add_fabric_cuts();
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
  const std::int32_t per_position = mesh_.ranks() / mesh_.size(Axis::Pipeline);
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
void Network::add_cut(LinkKind kind, std::int32_t block, double capacity, bool for_groups) {
  Cut cut{.kind = kind, .block = block, .capacity = capacity, .for_groups = for_groups};
  std::map<std::vector<std::int32_t>, std::int32_t> resource_of_content;
  std::vector<std::int32_t> content, previous;
  for (std::int32_t first = 0; first < mesh_.ranks(); first += block) {
    const std::int32_t end = std::min(first + block, mesh_.ranks());
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
      links_.push_back({kind, true, {capacity}});
      links_.push_back({kind, false, {capacity}});
    }
    cut.resource_of.push_back(at->second);
  }
  cuts_.push_back(std::move(cut));
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

std::vector<std::vector<std::int32_t>> Network::replicas_of(RankClass row) const {
  std::vector<std::vector<std::int32_t>> replicas;
  const std::int32_t begin = data_begin_[row.index()], end = data_end_[row.index()];
  for (std::int32_t d = begin; d < end; ++d) {
    std::vector<std::int32_t>& ranks = replicas.emplace_back();
    for (std::int32_t c = 0; c < mesh_.size(Axis::Context); ++c) {
      for (std::int32_t t = 0; t < mesh_.size(Axis::Tensor); ++t) {
        ranks.push_back(mesh_.rank({t, c, d, position_[row.index()]}).value);
      }
    }
  }
  return replicas;
}

double Network::ring_bandwidth(std::int32_t members) const {
  const ScaleUp& up = cluster_->scale_up;
  const double fraction = up.achievable_fraction.value_or(model_->constants.scale_up_fraction);
  const double port = cluster_->scale_up_bandwidth().value;
  switch (up.kind) {
    case ScaleUpKind::NvSwitch:
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
  const double fraction = up.achievable_fraction.value_or(model_->constants.scale_up_fraction);
  if (up.kind == ScaleUpKind::HybridCubeMesh && up.bandwidth_per_link) {
    return up.bandwidth_per_link->value * fraction;
  }
  return ring_bandwidth(2);
}

// Adds one instance to the loads. A ring enters and leaves each block once, whoever is in it. Where
// an instance has members of several rows (embed, world), each of them carries the whole load: the
// event engine takes the largest demand of ops that happen together, not their sum.
void Network::account(std::span<const std::int32_t> members, RankClass row,
                      std::vector<Loads>& loads, GroupShape& shape) const {
  const auto n = static_cast<std::int32_t>(members.size());
  const std::int32_t g = cluster_->gpus_per_node;
  std::int32_t nodes = 0, most = 0;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t end = i;
    while (end < members.size() && node_of(members[end]) == node_of(members[i])) ++end;
    ++nodes;
    most = std::max(most, static_cast<std::int32_t>(end - i));
    i = end;
  }
  shape.nodes = std::max(shape.nodes, nodes);
  std::int32_t processes = 1;
  for (std::size_t i = 1; i < members.size(); ++i) {
    processes += process_of(members[i]) != process_of(members[i - 1]) ? 1 : 0;
  }
  shape.processes = std::max(shape.processes, processes);
  shape.ranks_per_node = std::max(shape.ranks_per_node, most);
  for (std::size_t level = 0; level < cuts_.size(); ++level) {
    const Cut& cut = cuts_[level];
    const bool nic = cut.kind == LinkKind::Nic;
    if (!cut.for_groups || (nic && nodes == 1)) continue;
    if (members.front() / cut.block == members.back() / cut.block) continue;
    if (cut.kind == LinkKind::Pod) {
      std::int32_t pods = 1;
      for (std::size_t i = 1; i < members.size(); ++i) {
        pods += members[i] / cut.block != members[i - 1] / cut.block ? 1 : 0;
      }
      shape.pods = std::max(shape.pods, pods);
    }
    for (std::size_t i = 0; i < members.size();) {
      // All members of the block; for NICs first the ports that the members of the node use.
      const std::int32_t scope = nic ? g : cut.block;
      std::size_t scope_end = i;
      while (scope_end < members.size() && members[scope_end] / scope == members[i] / scope) {
        ++scope_end;
      }
      const auto inside = static_cast<std::int32_t>(scope_end - i);
      std::int32_t ports = 1;
      for (std::size_t j = i + 1; nic && j < scope_end; ++j) {
        ports += members[j] / cut.block != members[j - 1] / cut.block ? 1 : 0;
      }
      while (i < scope_end) {
        const std::int32_t block = members[i] / cut.block;
        bool own = false;
        for (; i < scope_end && members[i] / cut.block == block; ++i) {
          own = own || row_of_rank_[static_cast<std::size_t>(members[i])] == row.value;
        }
        if (!own) continue;
        const double share = 1.0 / ports;
        const double leaving = static_cast<double>(inside) * (n - inside) / n;
        loads[level].entries.push_back({block, share, share * leaving});
      }
    }
  }
}

// Equal links are one resource: the most loaded one counts.
void Network::append_links(std::span<Loads> loads, std::vector<LinkUse>& links, bool out,
                           bool in) const {
  for (std::size_t level = 0; level < loads.size(); ++level) {
    const Cut& cut = cuts_[level];
    const std::size_t first = links.size();
    loads[level].merge();
    for (const Loads::Entry& load : loads[level].entries) {
      const LinkUse use{{cut.resource_of[static_cast<std::size_t>(load.block)]},
                        cut.kind,
                        load.ring / cut.capacity,
                        load.pairwise / cut.capacity};
      const auto same =
          std::find_if(links.begin() + static_cast<std::ptrdiff_t>(first), links.end(),
                       [&](const LinkUse& other) { return other.resource == use.resource; });
      if (same == links.end()) {
        links.push_back(use);
      } else {
        same->ring = std::max(same->ring, use.ring);
        same->pairwise = std::max(same->pairwise, use.pairwise);
      }
    }
    if (in) {
      const std::size_t end = links.size();
      for (std::size_t i = first; i < end; ++i) {
        LinkUse inward = links[i];
        ++inward.resource.value;
        if (out) {
          links.push_back(inward);
        } else {
          links[i] = inward;
        }
      }
    }
  }
}

GroupAxes axes_of(GroupKind kind) {
  const GroupTraits& spans = traits(kind);
  if (spans.is_folded()) {
    return {.tensor = spans.expert_tensor,
            .context = spans.expert,
            .data = spans.expert_data,
            .folded = true};
  }
  return {.tensor = spans.tensor, .context = spans.context, .data = spans.data, .part = spans.part};
}

void Network::members_of(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                         const std::array<std::int32_t, 3>& fixed,
                         std::vector<std::int32_t>& members) const {
  const std::array<bool, 3> spans{axes.tensor, axes.context, axes.data};
  const auto first = [&](std::size_t k) { return spans[k] ? 0 : fixed[k]; };
  const auto end = [&](std::size_t k) { return spans[k] ? size[k] : fixed[k] + 1; };
  members.clear();
  for (const Position p : axes.positions) {
    for (std::int32_t z = first(2); z < end(2); ++z) {
      for (std::int32_t y = first(1); y < end(1); ++y) {
        for (std::int32_t x = first(0); x < end(0); ++x) {
          members.push_back(axes.folded ? mesh_.rank(Folded{x, y, z}, p.value).value
                                        : mesh_.rank({x, y, z, p.value}).value);
        }
      }
    }
  }
  std::sort(members.begin(), members.end());
}

// Of the instance-th of the groups of `among` replicas: neighbours, or one of every neighbourhood.
void Network::part_members(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                           const PartOfReplicas& part, std::vector<std::int32_t>& members) const {
  members.clear();
  for (const Position p : axes.positions) {
    for (std::int32_t k = 0; k < part.among; ++k) {
      const std::int32_t replica = axes.part == ReplicaPart::Neighbours
                                       ? part.instance * part.among + k
                                       : k * shards_ + part.instance;
      const std::int32_t end = axes.tensor ? size[0] : part.tensor + 1;
      for (std::int32_t t = axes.tensor ? 0 : part.tensor; t < end; ++t) {
        members.push_back(mesh_.rank({t, replica % size[1], replica / size[1], p.value}).value);
      }
    }
  }
  std::sort(members.begin(), members.end());
}

GroupShape Network::group(RankClass row, const GroupAxes& along) const {
  GroupShape shape;
  const Folded& folded = mesh_.folded_size();
  const std::array<std::int32_t, 3> size =
      along.folded
          ? std::array{folded.tensor, folded.expert, folded.data}
          : std::array{mesh_.size(Axis::Tensor), mesh_.size(Axis::Context), mesh_.size(Axis::Data)};
  GroupAxes axes = along;
  if (axes.positions.empty()) axes.positions.push_back({position_[row.index()]});
  const std::int32_t replicas = size[1] * size[2];
  const std::int32_t among = axes.part == ReplicaPart::Neighbours ? shards_
                             : axes.part == ReplicaPart::Across
                                 ? replicas / shards_
                                 : (axes.context ? size[1] : 1) * (axes.data ? size[2] : 1);
  shape.ranks =
      (axes.tensor ? size[0] : 1) * among * static_cast<std::int32_t>(axes.positions.size());
  if (shape.ranks <= 1) return shape;

  std::vector<Loads> loads(cuts_.size());
  std::vector<std::int32_t> instances_on(static_cast<std::size_t>(nodes_), 0);
  std::vector<std::int32_t> members;
  const auto count_instance = [&] {
    account(members, row, loads, shape);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int32_t node = node_of(members[i]);
      if (i > 0 && node == node_of(members[i - 1])) continue;
      const std::int32_t count = ++instances_on[static_cast<std::size_t>(node)];
      shape.siblings = std::max(shape.siblings, count);
    }
  };
  // Fixed coordinates choose the instance, the others run over its members.
  if (axes.part != ReplicaPart::All) {
    for (std::int32_t x = 0; x < (axes.tensor ? 1 : size[0]); ++x) {
      for (std::int32_t instance = 0; instance < replicas / among; ++instance) {
        part_members(axes, size, {x, instance, among}, members);
        count_instance();
      }
    }
  } else {
    // A parameter server has no experts: all replicas of these are the row's.
    const std::int32_t own_begin = axes.folded ? 0 : data_begin_[row.index()];
    const std::int32_t own_end = axes.folded ? size[2] : data_end_[row.index()];
    for (std::int32_t x = 0; x < (axes.tensor ? 1 : size[0]); ++x) {
      for (std::int32_t y = 0; y < (axes.context ? 1 : size[1]); ++y) {
        for (std::int32_t z = axes.data ? 0 : own_begin; z < (axes.data ? 1 : own_end); ++z) {
          members_of(axes, size, {x, y, z}, members);
          count_instance();
        }
      }
    }
  }
  if (shape.ranks_per_node > 1) {
    const double port = ring_bandwidth(shape.ranks_per_node);
    const double inside = static_cast<double>(shape.ranks_per_node - 1) / shape.ranks;
    for (std::int32_t direction = 0; direction < 2; ++direction) {
      shape.links.push_back({{2 * row.value + direction}, LinkKind::Port, 1 / port, inside / port});
    }
  }
  append_links(loads, shape.links, true, true);
  for (const LinkUse& use : shape.links) {
    if (use.kind != LinkKind::Nic) continue;
    const double nic = cluster_->nics.bandwidth_each.value * model_->nic.achievable_fraction;
    const double share = 1 / use.ring / nic;
    shape.nics = shape.nics == 0 ? share : std::min(shape.nics, share);
  }
  return shape;
}

GroupShape Network::group(RankClass row, Axis axis) const {
  if (axis == Axis::Expert || axis == Axis::ExpertTensor || axis == Axis::ExpertBlock) {
    return group(row, axes_of(kind_along(axis)));
  }
  GroupAxes axes{
      .tensor = axis == Axis::Tensor, .context = axis == Axis::Context, .data = axis == Axis::Data};
  if (axis == Axis::Pipeline) {
    for (std::int32_t p = 0; p < mesh_.size(Axis::Pipeline); ++p) axes.positions.push_back({p});
  }
  return group(row, axes);
}

GroupShape Network::group(RankClass row, const Schedule& schedule, GroupId id) const {
  const GroupKind kind = schedule.groups[id.index()].kind;
  GroupAxes axes = axes_of(kind);
  axes.positions = positions_of(kind, {position_[row.index()]}, schedule.placement);
  return group(row, axes);
}

Path Network::path(RankClass from, RankClass to) const {
  Path path;
  std::vector<Loads> out(cuts_.size()), in(cuts_.size());
  const std::int32_t shift =
      (position_[to.index()] - position_[from.index()]) * mesh_.stride(Axis::Pipeline);
  if (shift == 0) {
    path.same_device = true;
    return path;
  }
  bool inside = false;
  // Replicas do not wait for each other within a step: those that share a NIC take turns on it, so
  // that a transfer waits for the ranks of its own replica alone.
  for (const std::vector<std::int32_t>& senders : replicas_of(from)) {
    std::vector<Loads> leaving(cuts_.size()), entering(cuts_.size());
    for (const std::int32_t a : senders) {
      const std::int32_t b = a + shift;
      const bool crosses = node_of(a) != node_of(b);
      (crosses ? path.between_nodes : inside) = true;
      path.between_processes = path.between_processes || process_of(a) != process_of(b);
      for (std::size_t level = 0; level < cuts_.size(); ++level) {
        const Cut& cut = cuts_[level];
        if (!cut.for_groups || a / cut.block == b / cut.block) continue;
        if (cut.kind == LinkKind::Nic && !crosses) continue;
        if (cut.kind == LinkKind::Pod) path.crosses_pod = true;
        const bool turns = cut.kind == LinkKind::Nic;
        (turns ? leaving : out)[level].entries.push_back({a / cut.block, 1, 0});
        (turns ? entering : in)[level].entries.push_back({b / cut.block, 1, 0});
      }
    }
    for (std::size_t level = 0; level < cuts_.size(); ++level) {
      if (cuts_[level].kind != LinkKind::Nic) continue;
      leaving[level].merge();
      entering[level].merge();
      out[level].take_larger(leaving[level]);
      in[level].take_larger(entering[level]);
    }
  }
  if (inside) {
    const double port = 1 / pair_bandwidth();
    path.out.push_back({{2 * from.value}, LinkKind::Port, port, 0});
    path.in.push_back({{2 * to.value + 1}, LinkKind::Port, port, 0});
  }
  append_links(out, path.out, true, false);
  append_links(in, path.in, false, true);
  // A single pair reaches another share of its NIC than a ring does.
  const double nic = model_->nic.achievable_fraction / model_->transfer_fraction();
  for (std::vector<LinkUse>* uses : {&path.out, &path.in}) {
    for (LinkUse& use : *uses) {
      if (use.kind == LinkKind::Nic) use.ring *= nic;
      if (use.ring <= path.seconds_per_byte) continue;
      path.seconds_per_byte = use.ring;
      path.link = use.kind;
    }
  }
  return path;
}

std::vector<Counterpart> Network::counterparts(RankClass from, RankClass to) const {
  std::vector<Counterpart> names;
  if (from == to) return names;
  const Folded& folded = mesh_.folded_size();
  const bool folds = folded.expert > 1 || folded.tensor != mesh_.size(Axis::Tensor);
  constexpr std::array kAxes{Axis::Tensor, Axis::Context,      Axis::Data,
                             Axis::Expert, Axis::ExpertTensor, Axis::ExpertBlock};
  for (const Axis axis : std::span{kAxes}.first(folds ? 6 : 3)) {
    const GroupShape a = group(from, axis), b = group(to, axis);
    for (const LinkUse& use : a.links) {  // the k-th link of a kind is the k-th there
      const auto is_kind = [&](const LinkUse& other) { return other.kind == use.kind; };
      const auto k = std::count_if(a.links.data(), &use, is_kind);
      std::ptrdiff_t seen = 0;
      for (const LinkUse& other : b.links) {
        if (is_kind(other) && seen++ == k) names.push_back({use.resource, other.resource});
      }
    }
  }
  return names;
}

std::vector<Demand> moved_to(std::span<const Counterpart> links, std::span<const Demand> demands) {
  std::vector<Demand> moved(demands.begin(), demands.end());
  for (Demand& demand : moved) {
    const auto link = std::ranges::find(links, demand.resource, &Counterpart::here);
    if (link != links.end()) demand.resource = link->there;
  }
  return moved;
}

Path Network::to_host(RankClass row) const {
  Path path;
  path.link = LinkKind::Pcie;
  std::vector<Loads> loads(cuts_.size());
  for (std::size_t level = 0; level < cuts_.size(); ++level) {
    if (cuts_[level].kind != LinkKind::Pcie) continue;
    for (const std::int32_t rank : ranks_of(row)) {
      loads[level].entries.push_back({rank / cuts_[level].block, 1, 0});
    }
  }
  append_links(loads, path.out, true, false);
  append_links(loads, path.in, false, true);
  // The cut's capacity is what GPU traffic reaches; copies of pinned memory reach another share.
  const double copies = model_->constants.pcie_fraction / model_->constants.host_copy_fraction;
  for (std::vector<LinkUse>* uses : {&path.out, &path.in}) {
    for (LinkUse& use : *uses) {
      use.ring *= copies;
      path.seconds_per_byte = std::max(path.seconds_per_byte, use.ring);
    }
  }
  return path;
}

}  // namespace rehearse::sim
