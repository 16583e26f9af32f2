// SPDX-License-Identifier: Apache-2.0
// Which cause of a step's time an idle stretch of a compute stream is.
#pragma once

#include "schedules/trace/trace.h"
#include "sim/explain/breakdown.h"

namespace rehearse::sim {

// `communication`: which groups may be the ones that are waited for.
constexpr CauseSet causes_of_idle(IdleCause idle, CauseSet communication) {
  switch (idle) {
    case IdleCause::Warmup:
      return set_of({Cause::Warmup});
    case IdleCause::Cooldown:
      return set_of({Cause::Cooldown});
    case IdleCause::Dependency:
      return set_of({Cause::Dependency});
    case IdleCause::Straggler:
      return set_of({Cause::Straggler});
    case IdleCause::Host:
      return set_of({Cause::Host});
    case IdleCause::Resource:
      return set_of({Cause::Resource});
    case IdleCause::Imbalance:
      return set_of({Cause::Imbalance});
    case IdleCause::Communication:
    case IdleCause::Contention:
      break;
  }
  return communication;
}

constexpr Cause cause_of_group(GroupKind kind) {
  switch (kind) {
    case GroupKind::Tensor:
    case GroupKind::TensorRow:
    case GroupKind::TensorColumn:
      return Cause::TensorGroup;
    case GroupKind::Context:
    case GroupKind::ContextHeads:
    case GroupKind::ContextRing:
      return Cause::ContextGroup;
    case GroupKind::Expert:
    case GroupKind::ExpertTensor:
    case GroupKind::ExpertBlock:
      return Cause::ExpertGroup;
    case GroupKind::Pipeline:
      return Cause::PipelineGroup;
    case GroupKind::Data:
    case GroupKind::Embedding:
    case GroupKind::Mirror:
    case GroupKind::World:
    case GroupKind::Other:
    case GroupKind::Shard:
    case GroupKind::Replicate:
    case GroupKind::ExpertData:
      break;
  }
  return Cause::ReplicaGroup;
}

}  // namespace rehearse::sim
