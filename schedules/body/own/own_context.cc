// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_context.h"

#include "schedules/body/sizes.h"

namespace rehearse::own {

using H = TensorHome;
using K = Kernel;

Context context_of(const Layout& layout, const BodyShape& shape) {
  Context c{.layout = layout,
            .model = layout.model,
            .plan = layout.plan,
            .s = layout.shape,
            .direction = shape.direction,
            .experts = shape.experts,
            .slice = layout.plan.sequence_slices > 1 ? shape.slice : -1,
            .reach = shape.reach,
            .rotates = shape.rotates};
  c.activation = c.layout.activation_bytes();
  c.gathered = c.s.element * c.s.tokens * c.s.hidden;
  c.statistics = 4 * c.s.local * (c.model.norm == NormKind::LayerNorm ? 2 : 1);
  c.split =
      shape.direction == Direction::InputGradient || shape.direction == Direction::WeightGradient;
  return c;
}

void reduce_output(BodyBuilder& b, const Context& c, T partial, NodePhase phase, T own) {
  if (c.s.tensor == 1) return;
  b.collective(c.s.gather ? K::ReduceScatter : K::AllReduce,
               c.s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, partial,
               own == kNone ? partial : own, phase);
}

T gather_input(BodyBuilder& b, const Context& c, T local, std::string_view name, NodePhase phase) {
  if (!c.s.gather) return local;
  const T whole = b.tensor(name, H::Workspace, c.gathered);
  b.collective(K::AllGather, "all_gather tp", c.gathered, local, whole, phase);
  return whole;
}

}  // namespace rehearse::own
