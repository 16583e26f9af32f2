// SPDX-License-Identifier: Apache-2.0
// LOSS: of outputs that one rank has gathered from all replicas (DataParallel), the loss and the
// gradient of the outputs in their place. It adds to the loss of the step: an ADD about no bucket,
// of a stage and micro-batch.
#pragma once

#include "schedules/ir/op.h"

namespace rehearse {

inline constexpr std::string_view kLossName = "LOSS";

constexpr bool is_loss(const Op& op) {
  return op.kind == OpKind::Add && !op.bucket && op.stage;
}
constexpr Op loss_op(Stage stage, Microbatch microbatch) {
  return {.kind = OpKind::Add, .stream = Stream::Compute, .stage = stage, .microbatch = microbatch};
}

}  // namespace rehearse
