// SPDX-License-Identifier: Apache-2.0
// Latent attention: what lies between its products and the qkv of the attention core.
#include <cstdint>

#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

LatentShape latent_shape(const OpView& op) {
  const LatentAttention& m = op.shared.model.latent;
  return {.tokens = op.shared.shape.tokens,
          .heads = op.shared.shape.heads,
          .plain = m.qk_nope_head_dim,
          .rotary = m.qk_rope_head_dim,
          .values = m.v_head_dim};
}

}  // namespace

void split_latent(const OpView& op, const Node& n) {
  const LatentAttention& m = op.shared.model.latent;
  const std::int64_t rows = op.shared.shape.local, both = m.kv_lora_rank + m.qk_rope_head_dim;
  op.kernels.copy_columns(op.lane, rows, m.kv_lora_rank, op.in(n, 0), both, op.out(n, 0),
                          m.kv_lora_rank);
  op.kernels.copy_columns(op.lane, rows, m.qk_rope_head_dim,
                          op.element(op.in(n, 0), m.kv_lora_rank), both, op.out(n, 1),
                          m.qk_rope_head_dim);
}

void join_latent(const OpView& op, const Node& n) {
  const LatentAttention& m = op.shared.model.latent;
  const std::int64_t rows = op.shared.shape.local, both = m.kv_lora_rank + m.qk_rope_head_dim;
  op.kernels.copy_columns(op.lane, rows, m.kv_lora_rank, op.in(n, 0), m.kv_lora_rank, op.out(n),
                          both);
  op.kernels.copy_columns(op.lane, rows, m.qk_rope_head_dim, op.in(n, 1), m.qk_rope_head_dim,
                          op.element(op.out(n), m.kv_lora_rank), both);
}

void join_heads(const OpView& op, const Node& n) {
  op.kernels.join_heads(op.lane, latent_shape(op), op.in(n, 0), op.in(n, 1), op.in(n, 2),
                        op.out(n));
}

void split_heads(const OpView& op, const Node& n) {
  op.kernels.split_heads(op.lane, latent_shape(op), op.in(n, 0), op.out(n, 0), op.out(n, 1),
                         op.out(n, 2));
}

}  // namespace rehearse::exec
