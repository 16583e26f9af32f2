// SPDX-License-Identifier: Apache-2.0
// What the ops of a run share: shapes, bodies, and which parameter lies where in their lists.
#include "exec/body/body_runner.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/body/experts.h"
#include "exec/body/op_view.h"
#include "schedules/body/head_share.h"

namespace rehearse::exec {
namespace {

Roles roles_of(const std::vector<ParameterTensor>& tensors) {
  Roles roles;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    (tensors[k].bias ? roles.bias : roles.weight)[static_cast<std::size_t>(tensors[k].role)] =
        static_cast<int>(k);
  }
  return roles;
}

}  // namespace

BodyRunner::BodyRunner(const Layout& layout)
    : shared_(std::make_unique<Shared>(
          Shared{.layout = layout, .model = layout.model, .plan = layout.plan})) {
  Shared& s = *shared_;
  const Plan& plan = layout.plan;
  s.shape = layout.shape;
  s.attention = {.tokens = s.shape.tokens,
                 .sequence = plan.sequence_length / plan.context_parallel / plan.sequence_slices,
                 .heads = s.shape.heads,
                 .kv_heads = s.shape.kv_heads,
                 .head_dim = s.shape.head_dim,
                 .value_dim = s.shape.value_dim};
  s.core = s.attention;
  if (const HeadShare share = head_share(layout); share.ranks > 1) {
    s.core.tokens *= share.ranks;
    s.core.sequence *= share.ranks;
    s.core.heads = share.heads;
    s.core.kv_heads = share.kv_heads;
  }
  const Transformer& model = layout.model;
  const std::int64_t turning = model.rotary_head_dim();
  s.rotary = {rotary_of(model.rotary, turning, model.max_positions, plan.sequence_length),
              rotary_of(model.rotary_by_layer_kind ? model.windowed_rotary : model.rotary, turning,
                        model.max_positions, plan.sequence_length)};
  s.activation = aligned(layout.activation_bytes());
  s.bodies.resize(static_cast<std::size_t>(plan.sequence_slices));
  if (layout.model.experts.count > 0) {
    s.room = expert_room(layout);
    s.limits = limits_of(layout, s.room);
  }
  for (std::size_t slice = 0; slice < s.bodies.size(); ++slice) {
    for (std::size_t k = 0; k < kBodyKinds; ++k) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        const auto shape =
            shape_of_kind(layout, k, static_cast<Direction>(d), static_cast<std::int32_t>(slice));
        if (shape) s.bodies[slice][k][d] = make_body(layout, *shape);
      }
    }
  }
  for (std::size_t k = 0; k < kNumSegmentShapes; ++k) {
    const auto of = static_cast<SegmentShape>(k);
    const SegmentKind kind = kind_of(of);
    const bool experts = of == SegmentShape::ExpertLayer;
    if (experts && layout.model.experts.count == 0) continue;
    if (of == SegmentShape::PredictionLayer) continue;  // only frameworks have them
    // A model that lacks such a layer never asks for its body.
    auto tensors = segment_parameters(layout, kind, first_layer(model, experts));
    // A tied head reads the table as its last parameter (OpAddresses).
    if (kind == SegmentKind::Head && layout.model.tied_embedding)
      tensors.push_back({.name = "table.weight", .role = ParameterRole::Table});
    s.roles[k] = roles_of(tensors);
  }
}
BodyRunner::~BodyRunner() = default;

bool BodyRunner::meets(const ComputeOp& op) const {
  return std::ranges::any_of(
      op.segments, [&](const SegmentInfo& segment) { return shared_->meets(segment, op); });
}
bool BodyRunner::alone(const ComputeOp& op) const {
  return !shared_->plan.dropouts.any() && !meets(op);
}

const ExpertLimits& BodyRunner::expert_limits() const {
  return shared_->limits;
}

}  // namespace rehearse::exec
