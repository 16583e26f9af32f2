// SPDX-License-Identifier: Apache-2.0
// The ways from one row's ranks to another's, and to their hosts.
#include <algorithm>
#include <array>

#include "sim/network/link_loads.h"

namespace rehearse::sim {

std::vector<std::vector<std::int32_t>> Network::replicas_beside(RankClass row) const {
  std::vector<std::vector<std::int32_t>> replicas;
  for (std::int32_t d = 0; d < mesh_.size(Axis::Data); ++d) {
    std::vector<std::int32_t>& ranks = replicas.emplace_back();
    for (std::int32_t c = 0; c < mesh_.size(Axis::Context); ++c) {
      for (std::int32_t t = 0; t < mesh_.size(Axis::Tensor); ++t) {
        ranks.push_back(mesh_.rank({t, c, d, position_[row.index()]}).value);
      }
    }
  }
  return replicas;
}

Path Network::path(RankClass from, RankClass to) const {
  Path path;
  std::vector<Loads> out(cuts_.size()), in(cuts_.size());
  Loads on_torus;
  const std::int32_t shift =
      (position_[to.index()] - position_[from.index()]) * mesh_.stride(Axis::Pipeline);
  if (shift == 0) {
    path.same_device = true;
    return path;
  }
  bool inside = false;
  // Replicas do not wait for each other within a step: those that share a NIC take turns on it, so
  // that a transfer waits for the ranks of its own replica alone.
  const std::vector<std::vector<std::int32_t>> replicas = replicas_beside(from);
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    const std::int32_t own = has_replica(from, replica) ? 1 : 0;
    std::vector<Loads> leaving(cuts_.size()), entering(cuts_.size());
    for (const std::int32_t a : replicas[replica]) {
      const std::int32_t b = a + shift;
      const bool crosses = node_of(a) != node_of(b);
      (crosses ? path.between_nodes : inside) = true;
      if (torus_ && !crosses) {
        const std::int32_t g = cluster_->gpus_per_node;
        const std::vector<std::int32_t> links = torus_->route(a % g, b % g);
        path.hops = std::max(path.hops, static_cast<std::int32_t>(links.size()));
        for (const std::int32_t link : links) {
          on_torus.entries.push_back({node_of(a) * torus_->num_links() + link, 1, 0, own, 1});
        }
      }
      const bool leaves = process_of(a) != process_of(b);
      path.between_processes = path.between_processes || leaves;
      if (leaves && cluster_->throttle.on()) {
        add_crossing(process_of(a), process_of(b), {}, path.crossings);
      }
      for (std::size_t level = 0; level < cuts_.size(); ++level) {
        const Cut& cut = cuts_[level];
        if (!cut.for_groups || a / cut.block == b / cut.block) continue;
        if (cut.kind == LinkKind::Nic && !crosses) continue;
        if (cut.kind == LinkKind::Pod) path.crosses_pod = true;
        const bool turns = cut.kind == LinkKind::Nic;
        (turns ? leaving : out)[level].entries.push_back({a / cut.block, 1, 0, own, 1});
        (turns ? entering : in)[level].entries.push_back({b / cut.block, 1, 0, own, 1});
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
  if (torus_) {
    append_torus_links(on_torus, path.out);
  } else if (inside) {
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

Path Network::to_host(RankClass row) const {
  Path path;
  path.link = LinkKind::Pcie;
  std::vector<Loads> loads(cuts_.size());
  for (std::size_t level = 0; level < cuts_.size(); ++level) {
    if (cuts_[level].kind != LinkKind::Pcie) continue;
    const std::vector<std::vector<std::int32_t>> replicas = replicas_beside(row);
    for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
      const std::int32_t own = has_replica(row, replica) ? 1 : 0;
      for (const std::int32_t rank : replicas[replica]) {
        loads[level].entries.push_back({rank / cuts_[level].block, 1, 0, own, 1});
      }
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

std::vector<Counterpart> Network::counterparts(RankClass from, RankClass to) const {
  std::vector<Counterpart> names;
  if (from == to) return names;
  const Folded& folded = mesh_.folded_size();
  const bool folds = folded.expert > 1 || folded.tensor != mesh_.size(Axis::Tensor);
  std::vector<Axis> axes{Axis::Tensor, Axis::Context, Axis::Data};
  if (folds) axes.insert(axes.end(), {Axis::Expert, Axis::ExpertTensor, Axis::ExpertBlock});
  if (mesh_.grid_rows() > 1) axes.insert(axes.end(), {Axis::TensorRow, Axis::TensorColumn});
  if (mesh_.neighbours(false) > 1) {
    axes.insert(axes.end(), {Axis::ContextHeads, Axis::ContextRing});
  }
  for (const Axis axis : axes) {
    const GroupShape a = group(from, axis), b = group(to, axis);
    for (const LinkUse& use : a.links) {  // the k-th link of a kind is the k-th there
      if (use.part == 0) continue;        // other rows' alone
      const auto is_kind = [&](const LinkUse& other) {
        return other.kind == use.kind && other.part > 0;
      };
      const auto k = std::count_if(a.links.data(), &use, is_kind);
      std::ptrdiff_t seen = 0;
      for (const LinkUse& other : b.links) {
        if (is_kind(other) && seen++ == k) names.push_back({use.resource, other.resource});
      }
    }
    for (std::size_t k = 0; k < std::min(a.crossings.size(), b.crossings.size()); ++k) {
      names.push_back({a.crossings[k].link, b.crossings[k].link});
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

}  // namespace rehearse::sim
