// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/operand_role.h"

namespace rehearse {
namespace {

// An activation or gradient of the op's micro-batch, at a boundary of its part: a boundary inside a
// stage has the number of the segment behind it. What crosses from one stage to the next has 0: as
// an activation it belongs to the stage before, as a gradient to the stage behind.
OperandRole boundary_role(const Schedule& schedule, const Op& leaf, const Value& value,
                          bool written) {
  const auto segments = static_cast<std::int32_t>(schedule.segments[leaf.stage.index()].size());
  const std::int32_t begin = leaf.segment_end < 0 ? 0 : leaf.segment_begin;
  const std::int32_t end = leaf.segment_end < 0 ? segments : leaf.segment_end;
  const std::int32_t at = value.segment_begin, stages = value.stage.value - leaf.stage.value;
  if (value.kind == ValueKind::Activation) {
    if (written) {
      const bool behind = stages == 0 && at == (end == segments ? 0 : end);
      return behind && leaf.kind == OpKind::Forward ? OperandRole::Output : OperandRole::None;
    }
    const bool before = begin == 0 ? stages == -1 && at == 0 : stages == 0 && at == begin;
    return before ? OperandRole::Input : OperandRole::None;
  }
  if (leaf.kind == OpKind::Forward) return OperandRole::None;
  if (written) return stages == 0 && at == begin ? OperandRole::InputGradient : OperandRole::None;
  const bool behind = end == segments ? stages == 1 && at == 0 : stages == 0 && at == end;
  return behind ? OperandRole::OutputGradient : OperandRole::None;
}

}  // namespace

OperandRole role_of(const Schedule& schedule, const Op& leaf, const Operand& operand) {
  const Value& value = schedule.values[operand.value.index()];
  const bool mine = value.microbatch == leaf.microbatch;
  const auto if_own = [&](OperandRole role) {
    return mine && value.stage == leaf.stage ? role : OperandRole::None;
  };
  switch (value.kind) {
    case ValueKind::Input:
      return value.instance == 1 ? OperandRole::Targets : OperandRole::Tokens;
    case ValueKind::Activation:
    case ValueKind::ActivationGradient:
      return mine ? boundary_role(schedule, leaf, value, operand.access == Access::Write)
                  : OperandRole::None;
    case ValueKind::SavedForDgrad:
      return if_own(value.instance < leaf.slice ? OperandRole::EarlierSavedForDgrad
                                                : OperandRole::SavedForDgrad);
    case ValueKind::SavedForWgrad:
      return if_own(OperandRole::SavedForWgrad);
    case ValueKind::LeftForWgrad:
      return if_own(OperandRole::LeftForWgrad);
    case ValueKind::RemadeForDgrad:
      return if_own(OperandRole::RemadeForDgrad);
    case ValueKind::RemadeForWgrad:
      return if_own(OperandRole::RemadeForWgrad);
    case ValueKind::KeyValueGradient:
      return if_own(OperandRole::KeyValueGradient);
    case ValueKind::Workspace:
      return if_own(OperandRole::Workspace);
    case ValueKind::FullParameter:
      return OperandRole::Parameter;
    case ValueKind::Gradient:
      return value.instance == 1 ? OperandRole::HeadGradient : OperandRole::Gradient;
    case ValueKind::Metrics:
      return OperandRole::Loss;
    case ValueKind::ParameterShard:
    case ValueKind::OptimizerState:
      return OperandRole::None;
  }
  return OperandRole::None;
}

}  // namespace rehearse
