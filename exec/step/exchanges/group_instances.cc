// SPDX-License-Identifier: Apache-2.0
#include "exec/step/exchanges/group_instances.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "schedules/ranks/group_key.h"

namespace rehearse::exec {

GroupInstances::GroupInstances(const Schedule& schedule, const Mesh& mesh) {
  for (const Group& group : schedule.groups) {
    kinds_.push_back(group.kind);
    std::vector<Place> places(static_cast<std::size_t>(mesh.ranks()));
    std::map<std::array<std::int32_t, 3>, std::int32_t> known;
    for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
      const Coordinates at = mesh.coordinates({r});
      const auto key = group_key(schedule, group, at, mesh);
      if (key[0] < 0) continue;
      const auto [found, fresh] = known.try_emplace(key, static_cast<std::int32_t>(ranks.size()));
      if (fresh) ranks.emplace_back();
      auto& members = ranks[static_cast<std::size_t>(found->second)];
      places[static_cast<std::size_t>(r)] = {found->second,
                                             static_cast<std::int32_t>(members.size())};
      members.push_back(r);
    }
    // Members of dp, or of a part of it, in order of their replica, so that shard k is member k's.
    const GroupTraits& spans = traits(group.kind);
    const ReplicaPart part = spans.part;
    const bool of_replicas = group.kind == GroupKind::Data || part != ReplicaPart::All;
    for (std::int32_t r = 0; of_replicas && r < mesh.ranks(); ++r) {
      const std::int32_t replica = mesh.replica(mesh.coordinates({r}));
      Place& place = places[static_cast<std::size_t>(r)];
      place.member =
          part == ReplicaPart::Neighbours ? replica % mesh.neighbours(spans.data)
          : part == ReplicaPart::Across
              ? (spans.data ? replica : mesh.coordinates({r}).context) / mesh.neighbours(spans.data)
              : replica;
      ranks[static_cast<std::size_t>(place.instance)][static_cast<std::size_t>(place.member)] = r;
    }
    // Members of a file's own group as it lists them.
    for (std::int32_t r = 0; group.kind == GroupKind::Other && r < mesh.ranks(); ++r) {
      Place& place = places[static_cast<std::size_t>(r)];
      if (place.instance < 0) continue;
      const Position at{mesh.coordinates({r}).pipeline};
      const std::vector<Position> listed = own_instance(schedule, group, at);
      place.member = static_cast<std::int32_t>(std::ranges::find(listed, at) - listed.begin());
      ranks[static_cast<std::size_t>(place.instance)][static_cast<std::size_t>(place.member)] = r;
    }
    of.push_back(std::move(places));
  }
}

GroupInstances GroupInstances::by_size(std::int32_t ranks) {
  GroupInstances out;
  std::vector<std::int32_t> sizes;
  for (std::int32_t size = 2; size < ranks; size *= 2) sizes.push_back(size);
  if (ranks > 1) sizes.push_back(ranks);
  for (const std::int32_t size : sizes) {
    std::vector<Place> places(static_cast<std::size_t>(ranks));
    for (std::int32_t first = 0; first + size <= ranks; first += size) {
      const auto instance = static_cast<std::int32_t>(out.ranks.size());
      auto& members = out.ranks.emplace_back();
      for (std::int32_t member = 0; member < size; ++member) {
        places[static_cast<std::size_t>(first + member)] = {instance, member};
        members.push_back(first + member);
      }
    }
    out.of.push_back(std::move(places));
  }
  return out;
}

std::int32_t GroupInstances::group(GroupKind kind) const {
  return static_cast<std::int32_t>(std::ranges::find(kinds_, kind) - kinds_.begin());
}

std::vector<std::pair<std::int32_t, std::int32_t>> transfer_edges(const Schedule& schedule,
                                                                  const Mesh& mesh) {
  std::set<std::pair<std::int32_t, std::int32_t>> positions;
  for (std::int32_t row = 0; row < schedule.num_rows(); ++row) {
    for (const Op& op : schedule.program({row})) {
      if (op.kind == OpKind::Send)
        positions.emplace(schedule.position_of({row}).value, op.peer.value);
    }
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;
  for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
    const Coordinates from = mesh.coordinates({r});
    for (const auto& [position, peer] : positions) {
      if (from.pipeline != position) continue;
      Coordinates to = from;
      to.pipeline = peer;
      edges.emplace_back(r, mesh.rank(to).value);
    }
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

}  // namespace rehearse::exec
