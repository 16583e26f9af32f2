// SPDX-License-Identifier: Apache-2.0
// Latent attention of our executor's layers (DeepSeek-V2, arXiv 2405.04434, section 2.1): what lies
// between a layer's input and the q, k, v of its attention core, which is every model's.
//
// Products down to the compressed queries and keys are whole on every tp rank and see its own
// tokens; products up are cut by heads and see all tokens, so that under sequence parallelism what
// is gathered is compressed (as Megatron-LM's multi_latent_attention.py has it).
#pragma once

#include "schedules/body/own/own_context.h"

namespace rehearse::own {

// (local, width) each; st_: the norms' statistics. Without compressed queries no q.
struct LatentTensors {
  T q_raw = kNone, st_q = kNone, q = kNone;
  T kv_raw = kNone, st_kv = kNone, kv = kNone;
};
// for_input, for_weight: where the layer's forward leaves what the two gradients read.
LatentTensors latent_tensors(BodyBuilder& b, const Context& c, TensorHome for_input,
                             TensorHome for_weight);

// From y1(local, hidden) to qkv, its keys and queries rotated. Recomputed where slices keep qkv: up
// to the compressed ones alone.
void latent_forward(BodyBuilder& b, const Context& c, const LatentTensors& t, T y1, T qkv,
                    NodePhase phase);
// From dqkv to the gradient of y1, which it returns, (local, hidden), summed over tp.
T latent_backward(BodyBuilder& b, const Context& c, const LatentTensors& t, T y1, T dqkv);

}  // namespace rehearse::own
