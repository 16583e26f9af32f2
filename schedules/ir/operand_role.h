// SPDX-License-Identifier: Apache-2.0
// What an operand is to the compute op that has it.
#pragma once

#include "schedules/ir/schedule.h"

namespace rehearse {

enum class OperandRole : std::uint8_t {
  None,           // the op orders itself by it and does not touch it
  Tokens,         // of the whole step
  Targets,        // likewise
  Input,          // activation at the boundary before the op's part
  Output,         // activation at the boundary behind it
  InputGradient,  // gradients at the same boundaries
  OutputGradient,
  SavedForDgrad,
  EarlierSavedForDgrad,  // of an earlier slice of the sequence
  SavedForWgrad,
  LeftForWgrad,
  RemadeForDgrad,
  RemadeForWgrad,
  KeyValueGradient,  // of the slices up to the op's own, in their order
  Workspace,
  Parameter,
  Gradient,
  HeadGradient,  // of a tied table's use in the head, where it is kept apart
  Loss,
};

// `leaf` is the op, or the half of an OVERLAP pair whose role is asked for.
// REQUIRES: a lowered schedule; `operand` is one of the op's.
OperandRole role_of(const Schedule& schedule, const Op& leaf, const Operand& operand);

}  // namespace rehearse
