// SPDX-License-Identifier: Apache-2.0
// Which ranks meet in one group of a schedule, from the kind of the group: the one place that says
// so.
#pragma once

#include <array>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "schedules/scenario/mesh.h"

namespace rehearse {

// A body's collectives run along one axis of the mesh; parameters meet along data and context.
constexpr GroupKind kind_along(Axis axis) {
  constexpr std::array kKinds{
      GroupKind::Tensor,       GroupKind::Context,    GroupKind::Expert,
      GroupKind::Data,         GroupKind::Pipeline,   GroupKind::ExpertTensor,
      GroupKind::ExpertBlock,  GroupKind::TensorRow,  GroupKind::TensorColumn,
      GroupKind::ContextHeads, GroupKind::ContextRing};
  return kKinds[static_cast<std::size_t>(axis)];
}

// The instance of a file's own group that holds the position, its positions in the order of the
// members; empty: none.
std::vector<Position> own_instance(const Schedule& schedule, const Group& group, Position of);
// Positions of the instance that a rank at `own` is in, its own and others; empty: it is in none.
std::vector<Position> positions_of(GroupKind group, Position own, const Placement& placement);

// The kinds of groups that a model cut so has, with the ranks of an instance of each: more than
// one.
struct GroupSize {
  GroupKind kind{};
  std::int32_t ranks = 1;
};
std::vector<GroupSize> group_sizes(const Layout& layout, const Placement& placement);

// Ranks meet whose keys are equal. The key of a rank with these coordinates; the first number is -1
// where it is in no instance of the group.
std::array<std::int32_t, 3> group_key(GroupKind group, const Coordinates& at, const Mesh& mesh,
                                      const Placement& placement);
// The same of a schedule's group, which may be a file's own: ranks of one column of the mesh meet.
std::array<std::int32_t, 3> group_key(const Schedule& schedule, const Group& group,
                                      const Coordinates& at, const Mesh& mesh);

}  // namespace rehearse
