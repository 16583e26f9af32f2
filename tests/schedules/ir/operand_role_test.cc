// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/operand_role.h"

#include <gtest/gtest.h>

#include <map>

#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan_shape.h"
#include "tests/schedules/ir/example_case.h"

namespace rehearse {
namespace {

std::map<OperandRole, int> roles_of(const Schedule& s, OpId id, const Op& leaf) {
  std::map<OperandRole, int> roles;
  for (const Operand& operand : s.operands_of(id)) ++roles[role_of(s, leaf, operand)];
  return roles;
}

// Each part has one activation before and one behind, but for the model's ends: tokens come in
// before segment 0 of stage 0, and behind the last segment of the last stage is the loss. Gradients
// mirror that. What belongs to other parts, stages or micro-batches has no role.
TEST(OperandRole, EveryPartHasWhatItsBoundariesSay) {
  const Transformer model = example_model();
  int parts = 0, inner = 0;
  for (const std::int32_t zero_stage : {0, 1, 3}) {
    const Plan plan = example_plan(zero_stage);
    const Result<Schedule> order = generate("interleaved_1f1b", shape_of(plan).value());
    ASSERT_TRUE(order);
    const Result<Schedule> lowered =
        lower(order.value(), {model, plan}, {.estimates = Estimates{}});
    ASSERT_TRUE(lowered) << lowered.error().message;
    const Schedule& s = lowered.value();
    for (std::int32_t i = 0; i < s.num_ops(); ++i) {
      const Op& op = s.ops[static_cast<std::size_t>(i)];
      if (op.kind != OpKind::Forward && op.kind != OpKind::Backward) continue;
      const auto segments = static_cast<std::int32_t>(s.segments[op.stage.index()].size());
      const bool whole = op.segment_end < 0;
      const bool first = op.stage.value == 0 && (whole || op.segment_begin == 0);
      const bool last =
          op.stage.index() + 1 == s.segments.size() && (whole || op.segment_end == segments);
      const bool forward = op.kind == OpKind::Forward;
      auto roles = roles_of(s, {i}, op);
      EXPECT_EQ(roles[OperandRole::Tokens], first ? 1 : 0);
      EXPECT_EQ(roles[OperandRole::Output], forward && !last ? 1 : 0);
      EXPECT_EQ(roles[OperandRole::OutputGradient], !forward && !last ? 1 : 0);
      EXPECT_EQ(roles[OperandRole::InputGradient], !forward && !first ? 1 : 0);
      EXPECT_EQ(roles[OperandRole::Targets], forward && last ? 1 : 0);  // the loss and its slope
      if (forward) {
        EXPECT_EQ(roles[OperandRole::Input], first ? 0 : 1);
        EXPECT_EQ(roles[OperandRole::Loss], last ? 1 : 0);
      }
      ++parts;
      inner += first || last ? 0 : 1;
    }
  }
  EXPECT_GT(parts, 40);
  EXPECT_GT(inner, 10);
}

}  // namespace
}  // namespace rehearse
