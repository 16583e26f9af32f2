// SPDX-License-Identifier: Apache-2.0
// Which part of a report's memory a value of our executor's arena counts to.
#pragma once

#include <cstddef>

#include "schedules/ir/schedule.h"

namespace rehearse {

// Index into Trace::memory_parts: parameters, gradients, optimizer, activations, buffers,
// workspace. A gathered parameter is a buffer.
constexpr std::size_t memory_part(ValueKind kind, bool persistent) {
  switch (kind) {
    case ValueKind::FullParameter:
      return persistent ? 0 : 4;
    case ValueKind::ParameterShard:
      return 0;
    case ValueKind::Gradient:
      return 1;
    case ValueKind::OptimizerState:
      return 2;
    case ValueKind::Workspace:
      return 5;
    case ValueKind::Input:
    case ValueKind::Metrics:
      return 4;
    case ValueKind::Activation:
    case ValueKind::ActivationGradient:
    case ValueKind::SavedForDgrad:
    case ValueKind::SavedForWgrad:
    case ValueKind::LeftForWgrad:
    case ValueKind::KeyValueGradient:
    case ValueKind::RemadeForDgrad:
    case ValueKind::RemadeForWgrad:
      return 3;
  }
  return 3;
}

}  // namespace rehearse
