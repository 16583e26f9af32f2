// SPDX-License-Identifier: Apache-2.0
// Latent attention: what lies between its products and the qkv of the attention core.
#include "exec/body/body_state.h"

namespace rehearse::exec {

LatentShape OpCursor::State::latent_shape() const {
  const LatentAttention& m = shared.model.latent;
  return {.tokens = shared.shape.tokens,
          .heads = shared.shape.heads,
          .plain = m.qk_nope_head_dim,
          .rotary = m.qk_rope_head_dim,
          .values = m.v_head_dim};
}

void OpCursor::State::split_latent(const Node& n) const {
  const LatentAttention& m = shared.model.latent;
  const std::int64_t rows = shared.shape.local, both = m.kv_lora_rank + m.qk_rope_head_dim;
  kernels.copy_columns(lane, rows, m.kv_lora_rank, r(n, 0), both, w(n, 0), m.kv_lora_rank);
  kernels.copy_columns(lane, rows, m.qk_rope_head_dim, element(r(n, 0), m.kv_lora_rank), both,
                       w(n, 1), m.qk_rope_head_dim);
}

void OpCursor::State::join_latent(const Node& n) const {
  const LatentAttention& m = shared.model.latent;
  const std::int64_t rows = shared.shape.local, both = m.kv_lora_rank + m.qk_rope_head_dim;
  kernels.copy_columns(lane, rows, m.kv_lora_rank, r(n, 0), m.kv_lora_rank, w(n), both);
  kernels.copy_columns(lane, rows, m.qk_rope_head_dim, r(n, 1), m.qk_rope_head_dim,
                       element(w(n), m.kv_lora_rank), both);
}

}  // namespace rehearse::exec
