// SPDX-License-Identifier: Apache-2.0
// What lies before and behind an exchange of heads (schedules/body/own/own_head_exchange.h).
#include <cstdint>

#include "exec/body/node_rows.h"
#include "schedules/body/head_share.h"

namespace rehearse::exec {
namespace {

// What one rank of cp sends to another, or gets from it: rows of queries, or of outputs, and behind
// them rows of keys and values, where they travel.
struct ParcelShape {
  HeadShare share;
  std::int64_t tokens = 0;          // rows: of one rank
  std::int64_t first = 0, key = 0;  // columns of the two parts
  std::int64_t columns() const { return first + key; }
  std::int64_t begin(std::int64_t rank) const { return rank * tokens * columns(); }
  std::int64_t keys(std::int64_t rank) const { return begin(rank) + tokens * first; }
};
ParcelShape parcel_shape(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const HeadShare share = head_share(op.shared.layout);
  return {.share = share,
          .tokens = s.tokens,
          .first = share.heads * (n.k > 0 ? s.head_dim : s.value_dim),
          .key = n.k * (s.head_dim + s.value_dim)};
}

// A rank's columns in rows of all heads: `count` of them at `at` in a row, at `in` in its parcel's.
struct Stretch {
  std::int64_t at = 0, in = 0, count = 0;
};
Stretch first_columns(const ParcelShape& p, std::int64_t rank) {
  return {rank * p.first, 0, p.first};
}
struct KeysAndValues {
  Stretch keys, values;
};
KeysAndValues key_columns(const OpView& op, const ParcelShape& p, std::int64_t head) {
  const RankShape& s = op.shared.shape;
  const std::int64_t keys = p.share.kv_heads * s.head_dim, values = p.share.kv_heads * s.value_dim;
  return {{(s.heads + head) * s.head_dim, 0, keys},
          {(s.heads + s.kv_heads) * s.head_dim + head * s.value_dim, keys, values}};
}
// Columns of a row of all heads.
std::int64_t all_columns(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  return n.k > 0 ? op.shared.attention.columns() : s.heads * s.value_dim;
}

// Calls use(rows, their first in a rank's own, their first in the sequence's order) for the runs of
// rank `rank`'s rows.
template <class Use>
void for_runs_of(const OpView& op, const ParcelShape& p, std::int64_t rank, const Use& use) {
  const std::int64_t local = op.shared.attention.sequence, run = local / 2;
  for (std::int64_t row = 0; row < p.tokens; row += run) {
    const std::int64_t sample = row / local;
    const std::int64_t number = row / run % 2 == 0 ? rank : 2 * p.share.ranks - 1 - rank;
    use(run, row, sample * local * p.share.ranks + number * run);
  }
}

}  // namespace

void pack_heads(const OpView& op, const Node& n) {
  const ParcelShape p = parcel_shape(op, n);
  const std::int64_t columns = all_columns(op, n);
  const auto copy = [&](const Stretch& of, std::int64_t to, std::int64_t stride) {
    op.kernels.copy_columns(op.lane, p.tokens, of.count, op.element(op.in(n, 0), of.at), columns,
                            op.element(op.out(n), to + of.in), stride);
  };
  for (std::int64_t rank = 0; rank < p.share.ranks; ++rank) {
    copy(first_columns(p, rank), p.begin(rank), p.first);
    if (p.key == 0) continue;
    const KeysAndValues of = key_columns(op, p, p.share.first_key_head(rank));
    copy(of.keys, p.keys(rank), p.key);
    copy(of.values, p.keys(rank), p.key);
  }
}

void join_tokens(const OpView& op, const Node& n) {
  const ParcelShape p = parcel_shape(op, n);
  for (std::int64_t rank = 0; rank < p.share.ranks; ++rank) {
    for_runs_of(op, p, rank, [&](std::int64_t rows, std::int64_t from, std::int64_t to) {
      std::byte* row = op.element(op.out(n), to * p.columns());
      op.kernels.copy_columns(op.lane, rows, p.first,
                              op.element(op.in(n, 0), p.begin(rank) + from * p.first), p.first, row,
                              p.columns());
      if (p.key == 0) return;
      op.kernels.copy_columns(op.lane, rows, p.key,
                              op.element(op.in(n, 0), p.keys(rank) + from * p.key), p.key,
                              op.element(row, p.first), p.columns());
    });
  }
}

void split_tokens(const OpView& op, const Node& n) {
  const ParcelShape p = parcel_shape(op, n);
  for (std::int64_t rank = 0; rank < p.share.ranks; ++rank) {
    for_runs_of(op, p, rank, [&](std::int64_t rows, std::int64_t to, std::int64_t from) {
      std::byte* row = op.element(op.in(n, 0), from * p.columns());
      op.kernels.copy_columns(op.lane, rows, p.first, row, p.columns(),
                              op.element(op.out(n), p.begin(rank) + to * p.first), p.first);
      if (p.key == 0) return;
      op.kernels.copy_columns(op.lane, rows, p.key, op.element(row, p.first), p.columns(),
                              op.element(op.out(n), p.keys(rank) + to * p.key), p.key);
    });
  }
}

// Gradients of a key head that several ranks read are summed in the ranks' order.
void unpack_heads(const OpView& op, const Node& n) {
  const ParcelShape p = parcel_shape(op, n);
  const std::int64_t columns = all_columns(op, n);
  const auto copy = [&](const Stretch& of, std::int64_t from, std::int64_t stride) {
    op.kernels.copy_columns(op.lane, p.tokens, of.count, op.element(op.in(n, 0), from + of.in),
                            stride, op.element(op.out(n), of.at), columns);
  };
  for (std::int64_t rank = 0; rank < p.share.ranks; ++rank) {
    copy(first_columns(p, rank), p.begin(rank), p.first);
    if (p.key == 0 || rank % p.share.readers != 0) continue;
    std::byte* sum = op.element(op.in(n, 0), p.keys(rank));
    for (std::int64_t other = rank + 1; other < rank + p.share.readers; ++other) {
      op.kernels.add_residual(op.lane, p.tokens, p.key, sum, op.element(op.in(n, 0), p.keys(other)),
                              nullptr, {}, sum);
    }
    const KeysAndValues of = key_columns(op, p, p.share.first_key_head(rank));
    copy(of.keys, p.keys(rank), p.key);
    copy(of.values, p.keys(rank), p.key);
  }
}

}  // namespace rehearse::exec
