// SPDX-License-Identifier: Apache-2.0
// Groups of ranks to loads on the links of the blocks that they lie in.
#include <algorithm>
#include <array>
#include <map>

#include "schedules/ranks/group_key.h"
#include "sim/network/link_loads.h"

namespace rehearse::sim {

// Members of an instance of `n` that are left out hold as many blocks as the members of a period
// that is looked at and has replicas on both sides.
std::int32_t Network::blocks_of(std::span<const std::int32_t> members, std::int32_t n,
                                std::int32_t size) const {
  const bool whole = static_cast<std::int32_t>(members.size()) == n;
  std::int32_t blocks = 1, in_a_period = 0;
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (members[i] / size == members[i - 1] / size) continue;
    ++blocks;
    if (!whole) in_a_period += mesh_.coordinates({members[i]}).data / period_ == 1 ? 1 : 0;
  }
  return blocks + periods_left_out_ * in_a_period;
}

// Adds one instance to the loads. A ring enters and leaves each block once, whoever is in it. Where
// an instance has members of several rows (embed, world), each of them carries the whole load: the
// event engine takes the largest demand of ops that happen together, not their sum.
void Network::account(std::span<const std::int32_t> members, RankClass row,
                      std::vector<Loads>& loads, GroupShape& shape) const {
  const std::int32_t n = shape.ranks, g = cluster_->gpus_per_node;
  const std::int32_t nodes = blocks_of(members, n, g);
  std::int32_t most = 0;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t end = i;
    while (end < members.size() && node_of(members[end]) == node_of(members[i])) ++end;
    most = std::max(most, static_cast<std::int32_t>(end - i));
    i = end;
  }
  shape.nodes = std::max(shape.nodes, nodes);
  std::int32_t processes = 1;
  for (std::size_t i = 1; i < members.size(); ++i) {
    processes += process_of(members[i]) != process_of(members[i - 1]) ? 1 : 0;
  }
  shape.processes = std::max(shape.processes, processes);
  if (cluster_->throttle.on() && processes > 1) count_crossings(members, shape);
  shape.ranks_per_node = std::max(shape.ranks_per_node, most);
  for (std::size_t level = 0; level < cuts_.size(); ++level) {
    const Cut& cut = cuts_[level];
    const bool nic = cut.kind == LinkKind::Nic;
    if (!cut.for_groups || (nic && nodes == 1)) continue;
    if (members.front() / cut.block == members.back() / cut.block) continue;
    if (cut.kind == LinkKind::Pod)
      shape.pods = std::max(shape.pods, blocks_of(members, n, cut.block));
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
        bool own = false, beside = false;  // of the row; of its position
        for (; i < scope_end && members[i] / cut.block == block; ++i) {
          const std::int32_t of = row_of_rank_[static_cast<std::size_t>(members[i])];
          own = own || of == row.value;
          beside = beside ||
                   (of >= 0 && position_[static_cast<std::size_t>(of)] == position_[row.index()]);
        }
        if (!beside) continue;
        const double share = 1.0 / ports;
        const double leaving = static_cast<double>(inside) * (n - inside) / n;
        loads[level].entries.push_back({block, share, share * leaving, own ? 1 : 0, 1});
      }
    }
  }
}

void Network::account_on_torus(std::span<const std::int32_t> members, RankClass row, Loads& loads,
                               GroupShape& shape) const {
  const std::int32_t g = cluster_->gpus_per_node;
  std::vector<std::int32_t> chips;
  for (std::size_t i = 0; i < members.size();) {
    const std::int32_t node = node_of(members[i]);
    bool own = false, beside = false;  // as on every other level
    chips.clear();
    for (; i < members.size() && node_of(members[i]) == node; ++i) {
      chips.push_back(members[i] % g);
      const std::int32_t of = row_of_rank_[static_cast<std::size_t>(members[i])];
      own = own || of == row.value;
      beside =
          beside || (of >= 0 && position_[static_cast<std::size_t>(of)] == position_[row.index()]);
    }
    if (!beside) continue;
    const TorusGroup here = torus_->group(chips, shape.ranks);
    shape.turn_hops = std::max(shape.turn_hops, here.turn_hops);
    shape.next_hops = std::max(shape.next_hops, here.next_hops);
    shape.reach_hops = std::max(shape.reach_hops, here.reach_hops);
    for (const TorusLoad& load : here.loads) {
      loads.entries.push_back({node * torus_->num_links() + load.link, load.ring, load.pairwise,
                               own ? 1 : 0, 1, load.next});
    }
  }
}

// Equal links are one resource: the most loaded one counts.
void Network::append_torus_links(Loads& loads, std::vector<LinkUse>& links) const {
  std::map<std::int32_t, LinkUse> uses;
  loads.merge();
  for (const Loads::Entry& load : loads.entries) {
    const std::int32_t resource = torus_resource_[static_cast<std::size_t>(load.block)];
    const double capacity = links_[static_cast<std::size_t>(resource)].capacity.value;
    LinkUse& use =
        uses.try_emplace(resource,
                         LinkUse{.resource = {resource}, .kind = LinkKind::Torus, .part = 0})
            .first->second;
    use.ring = std::max(use.ring, load.ring / capacity);
    use.pairwise = std::max(use.pairwise, load.pairwise / capacity);
    use.next = std::max(use.next, load.next / capacity);
    use.part = std::max(use.part, static_cast<double>(load.own) / load.all);
  }
  for (const auto& [resource, use] : uses) links.push_back(use);
}

void Network::add_crossing(std::int32_t from, std::int32_t to, Crossing crossing,
                           std::vector<Crossing>& all) const {
  crossing.link = {static_cast<std::int32_t>(links_.size()) + from * cluster_->processes + to};
  for (Crossing& other : all) {
    Crossing like = other;
    like.instances = crossing.instances;
    if (like != crossing) continue;
    other.instances += crossing.instances;
    return;
  }
  all.push_back(crossing);
}

// Every two processes with members of the instance, in both directions.
void Network::count_crossings(std::span<const std::int32_t> members, GroupShape& shape) const {
  struct Held {
    std::int32_t process, members;
  };
  std::vector<Held> held;
  for (const std::int32_t rank : members) {
    if (held.empty() || held.back().process != process_of(rank)) {
      held.push_back({process_of(rank), 0});
    }
    ++held.back().members;
  }
  for (std::size_t a = 0; a < held.size(); ++a) {
    for (std::size_t b = 0; b < held.size(); ++b) {
      if (a == b) continue;
      add_crossing(held[a].process, held[b].process,
                   {.senders = held[a].members,
                    .receivers = held[b].members,
                    .next = b == (a + 1) % held.size()},
                   shape.crossings);
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
                        load.pairwise / cut.capacity,
                        0,
                        load.all > 0 ? static_cast<double>(load.own) / load.all : 1};
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
  return {.tensor = spans.tensor,
          .context = spans.context,
          .data = spans.data,
          .part = spans.part,
          .tensor_part = spans.tensor_part};
}

std::int32_t Network::tensor_instances(const GroupAxes& axes, std::int32_t size) const {
  if (!axes.tensor) return size;
  return axes.tensor_part == TensorPart::Row      ? mesh_.grid_rows()
         : axes.tensor_part == TensorPart::Column ? mesh_.grid_columns()
                                                  : 1;
}

std::vector<std::int32_t> Network::tensor_members(const GroupAxes& axes, std::int32_t size,
                                                  std::int32_t x) const {
  if (!axes.tensor) return {x};
  const std::int32_t columns = mesh_.grid_columns();
  const bool row = axes.tensor_part == TensorPart::Row,
             column = axes.tensor_part == TensorPart::Column;
  std::vector<std::int32_t> members;
  for (std::int32_t at = row      ? x * columns
                         : column ? x
                                  : 0;
       at < (row ? (x + 1) * columns : size); at += column ? columns : 1) {
    members.push_back(at);
  }
  return members;
}

void Network::members_of(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                         const std::array<std::int32_t, 3>& fixed,
                         std::vector<std::int32_t>& members) const {
  const std::array<bool, 3> spans{axes.tensor, axes.context, axes.data};
  const auto first = [&](std::size_t k) { return spans[k] ? 0 : fixed[k]; };
  const auto end = [&](std::size_t k) { return spans[k] ? size[k] : fixed[k] + 1; };
  const std::vector<std::int32_t> along_tensor = tensor_members(axes, size[0], fixed[0]);
  members.clear();
  for (const Position p : axes.positions) {
    for (std::int32_t z = first(2); z < end(2); ++z) {
      for (std::int32_t y = first(1); y < end(1); ++y) {
        for (const std::int32_t x : along_tensor) {
          members.push_back(axes.folded ? mesh_.rank(Folded{x, y, z}, p.value).value
                                        : mesh_.rank({x, y, z, p.value}).value);
        }
      }
    }
  }
  std::sort(members.begin(), members.end());
}

// Members of the instance-th group of `among` replicas: neighbours, or one of every neighbourhood.
void Network::part_members(const GroupAxes& axes, const std::array<std::int32_t, 3>& size,
                           const PartOfReplicas& part, std::vector<std::int32_t>& members) const {
  members.clear();
  for (const Position p : axes.positions) {
    for (std::int32_t k = 0; k < part.among; ++k) {
      const std::int32_t each = part.neighbours;  // Across: one of each, of the same range of them
      const std::int32_t replica =
          axes.part == ReplicaPart::Neighbours
              ? part.instance * part.among + k
              : (part.instance / each * part.among + k) * each + part.instance % each;
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
  GroupAxes axes = along;
  if (axes.positions.empty()) axes.positions.push_back({position_[row.index()]});
  const auto sizes = [&](const Mesh& mesh) {
    const Folded& folded = mesh.folded_size();
    return along.folded ? std::array{folded.tensor, folded.expert, folded.data}
                        : std::array{mesh.size(Axis::Tensor), mesh.size(Axis::Context),
                                     mesh.size(Axis::Data)};
  };
  const auto replicas_of_a_group = [&](const Mesh& mesh) {
    const std::array<std::int32_t, 3> size = sizes(mesh);
    const std::int32_t all = (axes.context ? size[1] : 1) * (axes.data ? size[2] : 1);
    return axes.part == ReplicaPart::Neighbours ? mesh.neighbours(axes.data)
           : axes.part == ReplicaPart::Across   ? all / mesh.neighbours(axes.data)
                                                : all;
  };
  const std::array<std::int32_t, 3> size = sizes(mesh_);
  const std::int32_t replicas = size[1] * size[2], among = replicas_of_a_group(mesh_);
  const std::int32_t instances = tensor_instances(axes, size[0]);
  shape.ranks = size[0] / instances * replicas_of_a_group(whole_) *
                static_cast<std::int32_t>(axes.positions.size());
  if (shape.ranks <= 1) return shape;

  std::vector<Loads> loads(cuts_.size());
  Loads on_torus;
  std::vector<std::int32_t> instances_on(static_cast<std::size_t>(node_of(mesh_.ranks() - 1)) + 1,
                                         0);
  std::vector<std::int32_t> members;
  const auto count_instance = [&] {
    account(members, row, loads, shape);
    if (torus_) account_on_torus(members, row, on_torus, shape);
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
        part_members(axes, size, {x, instance, among, mesh_.neighbours(axes.data)}, members);
        count_instance();
      }
    }
  } else {
    // Those of the other rows of the position too: they run at the same time.
    for (std::int32_t x = 0; x < instances; ++x) {
      for (std::int32_t y = 0; y < (axes.context ? 1 : size[1]); ++y) {
        for (std::int32_t z = 0; z < (axes.data ? 1 : size[2]); ++z) {
          members_of(axes, size, {x, y, z}, members);
          count_instance();
        }
      }
    }
  }
  if (torus_) {
    append_torus_links(on_torus, shape.links);
  } else if (shape.ranks_per_node > 1) {
    const double port = ring_bandwidth(shape.ranks_per_node);
    const double inside = static_cast<double>(shape.ranks_per_node - 1) / shape.ranks;
    for (std::int32_t direction = 0; direction < 2; ++direction) {
      shape.links.push_back({{2 * row.value + direction}, LinkKind::Port, 1 / port, inside / port});
    }
  }
  append_links(loads, shape.links, true, true);
  for (LinkUse& use : shape.links) {
    if (use.kind != LinkKind::Nic) continue;
    // Links have what all groups of a node reach together; these may be too few for it.
    const double fraction = model_->nic.fraction_of(shape.siblings);
    const double slower = model_->nic.achievable_fraction / fraction;
    use.ring *= slower;
    use.pairwise *= slower;
    const double nic = cluster_->nics.bandwidth_each.value * fraction;
    const double share = 1 / use.ring / nic;
    shape.nics = shape.nics == 0 ? share : std::min(shape.nics, share);
  }
  return shape;
}

GroupShape Network::group(RankClass row, Axis axis) const {
  constexpr std::array kOfTheMesh{Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline};
  if (std::ranges::find(kOfTheMesh, axis) == kOfTheMesh.end()) {
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
  const Group& group = schedule.groups[id.index()];
  const Position own{position_[row.index()]};
  GroupAxes axes = axes_of(group.kind);
  axes.positions = group.kind == GroupKind::Other
                       ? own_instance(schedule, group, own)
                       : positions_of(group.kind, own, schedule.placement);
  return this->group(row, axes);
}

}  // namespace rehearse::sim
