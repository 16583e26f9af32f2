// SPDX-License-Identifier: Apache-2.0
// LOSS: of outputs that one rank has gathered from all replicas (DataParallel), the loss and the
// gradient of the outputs in their place. It adds to the loss of the step: an ADD of activations.
#pragma once

#include "schedules/ir/op.h"

namespace rehearse {

constexpr bool is_loss(OpKind kind, Payload payload) {
  return kind == OpKind::Add && payload == Payload::Activation;
}
constexpr bool is_loss(const Op& op) {
  return is_loss(op.kind, op.payload);
}
constexpr Op loss_op(Stage stage, Microbatch microbatch) {
  return {.kind = OpKind::Add,
          .stream = Stream::Compute,
          .payload = Payload::Activation,
          .stage = stage,
          .microbatch = microbatch};
}

}  // namespace rehearse
