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

void join_heads(const OpView& op, const Node& n) {
  op.kernels.join_heads(op.lane, latent_shape(op), op.in(n, 0), op.in(n, 1), op.in(n, 2),
                        op.out(n));
}

void split_heads(const OpView& op, const Node& n) {
  op.kernels.split_heads(op.lane, latent_shape(op), op.in(n, 0), op.out(n, 0), op.out(n, 1),
                         op.out(n, 2));
}

}  // namespace rehearse::exec
