// SPDX-License-Identifier: Apache-2.0
// What one stage hands to the next: activations to the stage after it, gradients to the one before.
//
// Both lowerings go by this: add_transfers, which has no model, and passes/place_transfers.cc. Both
// put all ends into one global order and give each row its share, so no edge goes backwards and
// nothing can hang; among transfers of one time both take activations before gradients, then go by
// the sender's stage, micro-batch and slice.
#pragma once

#include "schedules/ir/op.h"

namespace rehearse {

// The stage that lists the other end of a transfer; outside the placement: there is none.
constexpr Stage other_stage(OpKind kind, Payload payload, Stage issuing) {
  const bool up = (payload == Payload::Gradient) == (kind == OpKind::Recv);
  return {issuing.value + (up ? 1 : -1)};
}

// A SEND or a RECV of the stage `issuing`.
constexpr Op transfer_op(OpKind kind, Payload payload, Stage issuing, Microbatch microbatch,
                         std::int8_t slice) {
  return {.kind = kind,
          .stream = Stream::P2p,
          .payload = payload,
          .slice = slice,
          .stage = issuing,
          .microbatch = microbatch};
}

}  // namespace rehearse
