// SPDX-License-Identifier: Apache-2.0
// The attention core of our executor's layers: whole, or in parts where a sequence is cut over
// ranks or slices; between two exchanges where ranks trade tokens for heads.
#pragma once

#include "schedules/body/own/own_context.h"

namespace rehearse::own {

struct AttentionTensors {
  T qkv = kNone, o = kNone, lse = kNone;
  // The same of all tokens and this rank's heads, where heads are exchanged; else kNone.
  T qkv_of_heads = kNone, o_of_heads = kNone;
};
// What attention_forward reads, where it is not qkv itself.
void bring_heads(BodyBuilder& b, const Context& c, const AttentionTensors& t, NodePhase phase);
void attention_forward(BodyBuilder& b, const Context& c, const AttentionTensors& t,
                       NodePhase phase);
// From d_o to dqkv; delta(heads, tokens) is scratch.
void attention_backward(BodyBuilder& b, const Context& c, const AttentionTensors& t, T d_o, T dqkv,
                        T delta);

}  // namespace rehearse::own
