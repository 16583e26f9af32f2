// SPDX-License-Identifier: Apache-2.0
#include "schedules/ranks/group_key.h"

#include <algorithm>

namespace rehearse {

std::vector<Position> positions_of(GroupKind group, Position own, const Placement& placement) {
  std::vector<Position> positions;
  switch (traits(group).positions) {
    case Positions::Own:
      return {own};
    case Positions::All:
      for (std::int32_t p = 0; p < placement.positions; ++p) positions.push_back({p});
      return positions;
    case Positions::Ends: {
      const Position first = placement.down.front(), last = placement.down.back();
      if (own == first || own == last) positions = {first, last};
      return positions;
    }
    case Positions::Mirrored:
      return {own, {placement.positions - 1 - own.value}};
  }
  return positions;
}

std::vector<Position> own_instance(const Schedule& schedule, const Group& group, Position of) {
  const auto size = static_cast<std::size_t>(group.size);
  std::vector<Position> positions;
  for (std::size_t begin = 0; begin < group.rows.size(); begin += size) {
    for (std::size_t i = begin; i < begin + size; ++i) {
      positions.push_back(schedule.position_of(group.rows[i]));
    }
    if (std::ranges::find(positions, of) != positions.end()) return positions;
    positions.clear();
  }
  return positions;
}

std::vector<GroupSize> group_sizes(const Layout& layout, const Placement& placement) {
  const Plan& plan = layout.plan;
  std::vector<GroupSize> groups;
  const auto add = [&](GroupKind kind, std::int32_t ranks) {
    if (ranks > 1) groups.push_back({kind, ranks});
  };
  add(GroupKind::Tensor, plan.tensor_parallel);
  add(GroupKind::TensorRow, plan.tensor_parallel_2d.columns);
  add(GroupKind::TensorColumn, plan.tensor_parallel_2d.rows);
  add(GroupKind::Context, plan.context_parallel);
  if (plan.head_exchange_group > 0) {
    add(GroupKind::ContextHeads, plan.head_exchange_group);
    add(GroupKind::ContextRing, plan.context_parallel / plan.head_exchange_group);
  }
  if (plan.shard_group == 0) {
    add(GroupKind::Data, plan.replicas());
    add(GroupKind::Shard, plan.secondary_shard_group);
  } else {
    add(GroupKind::Shard, plan.shards());
    add(GroupKind::Replicate, plan.replicas() / plan.shards());
  }
  add(GroupKind::Pipeline, plan.pipeline_parallel);
  if (!placement.up.empty()) {
    add(GroupKind::Mirror, 2);
  } else if (layout.model.tied_embedding && placement.down.front() != placement.down.back()) {
    add(GroupKind::Embedding, 2);
  }
  add(GroupKind::World, plan.gpus());
  if (layout.model.experts.count > 0) {
    const ExpertShape& experts = layout.shape.experts;
    add(GroupKind::Expert, plan.expert_parallel);
    add(GroupKind::ExpertTensor, static_cast<std::int32_t>(experts.bringing));
    add(GroupKind::ExpertBlock, static_cast<std::int32_t>(experts.block));
    if (plan.folds_experts()) add(GroupKind::ExpertData, plan.expert_replicas());
  }
  return groups;
}

std::array<std::int32_t, 3> group_key(GroupKind group, const Coordinates& at, const Mesh& mesh,
                                      const Placement& placement) {
  const bool meets = group != GroupKind::Pipeline && group != GroupKind::Other;
  const std::vector<Position> positions = positions_of(group, {at.pipeline}, placement);
  if (!meets || positions.empty()) return {-1, 0, 0};
  // What does not vary inside an instance.
  const GroupTraits& spans = traits(group);
  if (spans.is_folded()) {
    const Folded folded = mesh.folded(at);
    return {spans.expert_tensor ? 0 : folded.tensor,
            (spans.expert_data ? 0 : folded.data * mesh.folded_size().expert) +
                (spans.expert ? 0 : folded.expert),
            at.pipeline};
  }
  const std::int32_t replica = mesh.replica(at), neighbours = mesh.neighbours(spans.data);
  const std::int32_t among_replicas =
      spans.part == ReplicaPart::Neighbours ? replica / neighbours
      : spans.part == ReplicaPart::Across
          ? (spans.data ? 0 : at.data * neighbours) + replica % neighbours
          : mesh.replica(
                {.context = spans.context ? 0 : at.context, .data = spans.data ? 0 : at.data});
  const std::int32_t among_tensor = spans.tensor_part == TensorPart::Row      ? mesh.grid_row(at)
                                    : spans.tensor_part == TensorPart::Column ? mesh.grid_column(at)
                                    : spans.tensor                            ? 0
                                                                              : at.tensor;
  return {among_tensor, among_replicas, std::ranges::min(positions).value};
}

std::array<std::int32_t, 3> group_key(const Schedule& schedule, const Group& group,
                                      const Coordinates& at, const Mesh& mesh) {
  if (group.kind != GroupKind::Other) return group_key(group.kind, at, mesh, schedule.placement);
  const std::vector<Position> positions = own_instance(schedule, group, {at.pipeline});
  if (positions.empty()) return {-1, 0, 0};
  return {at.tensor, mesh.replica(at), positions.front().value};
}

}  // namespace rehearse
