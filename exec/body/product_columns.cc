// SPDX-License-Identifier: Apache-2.0
// What one product gives side by side: compressed keys and values with the rotary key of latent
// attention; or, where heads have a gate (Qwen3-Next), by head its queries and as many columns as
// the head gives values, whose sigmoid multiplies these, and behind all heads keys and values.
#include <cstddef>
#include <cstdint>

#include "exec/body/node_rows.h"
#include "schedules/model/parts.h"

namespace rehearse::exec {
namespace {

// `columns` of them from `whole` on in the product's row, from `apart` on in the row of the
// `which`-th tensor beside it, of `stride` columns.
struct ProductColumns {
  std::int64_t whole = 0, apart = 0, columns = 0, stride = 0;
  std::size_t which = 0;
};

// Calls use(stretch, columns of the product's row, rows) for each.
template <class Use>
void for_columns_of_product(const OpView& op, const Use& use) {
  const RankShape& s = op.shared.shape;
  const LatentAttention& latent = op.shared.model.latent;
  if (latent.used()) {
    const std::int64_t kept = compressed_key_value_columns(op.shared.model);
    const std::int64_t rotary = latent.qk_rope_head_dim;
    const auto part = [&](const ProductColumns& one) { use(one, kept + rotary, s.local); };
    part({.whole = 0, .columns = kept, .stride = kept});
    part({.whole = kept, .columns = rotary, .stride = rotary, .which = 1});
    return;
  }
  const std::int64_t queries = s.head_dim, values = s.value_dim, both = queries + values,
                     plain = op.shared.attention.columns();
  const auto part = [&](const ProductColumns& one) { use(one, s.qkv, s.tokens); };
  for (std::int64_t head = 0; head < s.heads; ++head) {
    part({.whole = head * both, .apart = head * queries, .columns = queries, .stride = plain});
    part({.whole = head * both + queries,
          .apart = head * values,
          .columns = values,
          .stride = s.gate,
          .which = 1});
  }
  part({.whole = s.heads * both,
        .apart = s.heads * queries,
        .columns = op.shared.attention.kv_columns(),
        .stride = plain});
}

}  // namespace

void split_product(const OpView& op, const Node& n) {
  for_columns_of_product(op, [&](const ProductColumns& one, std::int64_t row, std::int64_t rows) {
    op.kernels.copy_columns(op.lane, rows, one.columns, op.element(op.in(n, 0), one.whole), row,
                            op.element(op.out(n, one.which), one.apart), one.stride);
  });
}

void join_product(const OpView& op, const Node& n) {
  for_columns_of_product(op, [&](const ProductColumns& one, std::int64_t row, std::int64_t rows) {
    op.kernels.copy_columns(op.lane, rows, one.columns, op.element(op.in(n, one.which), one.apart),
                            one.stride, op.element(op.out(n), one.whole), row);
  });
}

}  // namespace rehearse::exec
