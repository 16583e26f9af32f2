// SPDX-License-Identifier: Apache-2.0
// What is known before the first row is lowered.
#include "schedules/passes/draft.h"

#include <algorithm>

#include "schedules/body/leaving.h"
#include "schedules/ranks/group_key.h"

namespace rehearse {
namespace {

BodyTable body_table(const Layout& layout, std::int32_t slices, const PlacedRecompute& placed) {
  BodyTable table(static_cast<std::size_t>(slices));
  if (!layout.plan.runtime.performer().keeps_slabs) return table;
  for (std::size_t slice = 0; slice < table.size(); ++slice) {
    for (std::size_t k = 0; k < kBodyKinds; ++k) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        const std::optional<BodyShape> shape =
            shape_of_kind(layout, k, static_cast<Direction>(d), static_cast<std::int32_t>(slice));
        if (!shape) continue;
        const bool of_placed = shape->apart || shape->direction == Direction::Recompute;
        if (of_placed && !placed.any()) continue;
        const Body body = make_body(layout, *shape);
        table[slice][k][d] = {.saved_for_dgrad = body.saved_for_dgrad,
                              .saved_for_wgrad = body.saved_for_wgrad,
                              .left_for_wgrad = body.left_for_wgrad,
                              .workspace = body.workspace,
                              .remade_for_dgrad = body.remade_for_dgrad,
                              .remade_for_wgrad = body.remade_for_wgrad,
                              .key_value_gradient = body.key_value_gradient,
                              .reads_parameters = body.reads_parameters};
      }
    }
  }
  return table;
}

// Folding: one row per position; a parameter server is an odd replica and gets rows of its own.
std::vector<RankClassInfo> make_rows(const Plan& plan, const Placement& placement) {
  std::vector<RankClassInfo> rows;
  const bool server = plan.has_parameter_server();
  const std::int32_t replicas = plan.replicas(), first = server ? 1 : 0;
  for (Position position{0}; position.value < placement.positions; ++position.value) {
    if (server) rows.push_back({position, plan.tensor_parallel, 0, 1});
    rows.push_back({position, plan.tensor_parallel * (replicas - first), first, replicas});
  }
  return rows;
}

std::vector<Group> make_groups(const Schedule& s, const Schedule& order, const Layout& layout) {
  std::vector<Group> groups;
  for (const auto& [kind, ranks] : group_sizes(layout, s.placement)) {
    Group group{.kind = kind, .size = ranks};
    for (RankClass row{0}; row.index() < s.rows.size(); ++row.value) {
      if (!positions_of(kind, s.position_of(row), s.placement).empty()) group.rows.push_back(row);
    }
    groups.push_back(std::move(group));
  }
  for (Group group : order.groups) {  // a file's own: one row for every position
    std::vector<RankClass> rows;
    for (const RankClass position : group.rows) {
      const auto row =
          std::ranges::find(s.rows, Position{position.value}, &RankClassInfo::position);
      rows.push_back({static_cast<std::int32_t>(row - s.rows.begin())});
    }
    group.rows = std::move(rows);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

Draft make_draft(const Schedule& order, const Layout& layout, const LowerOptions& options) {
  const std::int32_t slices = std::max(order.slices, 1);
  Draft draft{.layout = layout,
              .plan = layout.plan,
              .order = order,
              .estimates = options.estimates ? *options.estimates : estimate_by_flops(layout),
              .placed = PlacedRecompute(order),
              .kept = options.kept};
  draft.bodies = body_table(layout, slices, draft.placed);
  draft.layer_forward = draft.estimates.layer_forward;
  Schedule& s = draft.schedule;
  s.level = Level::Full;
  s.name = order.name;
  s.microbatches = order.microbatches;
  s.slices = order.slices;
  s.placement = order.placement;
  s.segments = stage_segments(layout, order.placement.stages());
  for (const std::vector<SegmentInfo>& segments : s.segments) {
    draft.leaving.push_back(static_cast<std::int32_t>(layers_of(segments)));
  }
  s.rows = make_rows(layout.plan, s.placement);
  s.groups = make_groups(s, order, layout);
  const std::size_t classes = s.rows.size() / static_cast<std::size_t>(s.placement.positions);
  const auto units = static_cast<std::size_t>(order.microbatches * slices);
  draft.carried.resize(2 * s.segments.size() * units * classes);
  // About: two transfers beside every compute op, two operands each, one of them new.
  const std::size_t ops = (3 * order.ops.size() + 16 * s.segments.size() + 64) * classes;
  draft.ops.reserve(ops);
  draft.program.reserve(ops);
  draft.operands.reserve(5 * ops / 2);
  s.values.reserve(ops);
  return draft;
}

}  // namespace rehearse
