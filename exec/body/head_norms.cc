// SPDX-License-Identifier: Apache-2.0
// Norms of queries and keys: of each head, or of all heads' columns, which tp ranks share.
//
// Each holder of a key head that several ranks hold (Layout::key_value_replicas) has the gradient
// of its own queries' part, here as before. The norm of all heads is linear in that gradient dy: dx
// = r (w dy - x r^2 sum(w dy x) / total), the sum over all heads and all parts. So every holder
// takes r w dy of its part, and the first alone the rest. In the sum of squares, where each holder
// has the same x, the first alone counts. The weight's gradient is that of the own part, among
// columns for all key heads, and is summed over tp when the step's gradients are.
#include <array>
#include <cstdint>

#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

// Heads of queries or of keys: where they lie in a row, their share of the statistics, and of
// the weight the first number that this rank's heads read.
struct HeadNorm {
  ParameterRole role{};
  StridedNorm shape;
  std::int64_t column = 0, statistics = 0, weight = 0;
};

// Llama 4 norms heads once they are rotated, by R, and multiplied by a factor c: c R x divided by
// the root of c^2 mean(x^2) + epsilon is R times x by the root of mean(x^2) + epsilon / c^2. So its
// norm comes before the rotation as others' do.
std::array<HeadNorm, 2> head_norms(const OpView& op) {
  const Transformer& m = op.shared.model;
  const RankShape& s = op.shared.shape;
  const bool whole = m.query_key_norm_whole;
  const double factor = m.query_key_unit_norm ? op.shared.rotary.front().attention_factor : 1;
  const auto norm = [&](ParameterRole role, std::int64_t heads, std::int64_t of_all_ranks) {
    return HeadNorm{.role = role,
                    .shape = {.rows = s.tokens,
                              .groups = whole ? 1 : heads,
                              .width = whole ? heads * s.head_dim : s.head_dim,
                              .stride = op.shared.attention.columns(),
                              .total = whole ? of_all_ranks * s.head_dim : s.head_dim,
                              .epsilon = m.norm_epsilon / (factor * factor),
                              .weight_offset = m.norm_from_one ? 1.0 : 0.0}};
  };
  HeadNorm queries = norm(ParameterRole::QueryNorm, s.heads, m.heads);
  HeadNorm keys = norm(ParameterRole::KeyNorm, s.kv_heads, m.kv_heads);
  keys.column = s.heads * s.head_dim;
  keys.statistics = s.tokens * queries.shape.groups;
  if (whole && op.shared.layout.key_value_replicas() > 1) keys.weight = op.key_head() * s.head_dim;
  return {queries, keys};
}

// Null: it has none.
const std::byte* weight_of(const OpView& op, const HeadNorm& one) {
  const std::byte* weight = op.parameter(one.role);
  return weight == nullptr ? nullptr : weight + one.weight * op.shared.shape.element;
}

// One norm of all heads, with other ranks.
bool shares_norm(const OpView& op) {
  return op.shared.model.query_key_norm_whole && op.shared.shape.tensor > 1;
}

// Whether the layer norms its heads: in Llama 4 those do that rotate.
bool norms_heads(const OpView& op) {
  return !op.shared.model.query_key_unit_norm || op.shared.model.rotates(op.layer());
}

// Clears the sums over keys, but at the first of the ranks that hold the same key head.
void keep_one_holder(const OpView& op, float* sums) {
  if (op.coordinate % op.shared.layout.key_value_replicas() == 0) return;
  const HeadNorm keys = head_norms(op)[1];
  op.device.clear(op.lane, sums + keys.statistics, keys.shape.rows * 4);
}

// Reads q, k, v as the product gave them.
void squares(const OpView& op, const Node& n, float* sums) {
  for (const HeadNorm& one : head_norms(op)) {
    op.kernels.row_squares(op.lane, one.shape, op.element(op.in(n, 0), one.column),
                           sums + one.statistics);
  }
  if (shares_norm(op)) keep_one_holder(op, sums);
}

// Reads dqkv, and behind it q, k, v as the product gave them.
void products(const OpView& op, const Node& n, float* sums) {
  for (const HeadNorm& one : head_norms(op)) {
    op.kernels.row_products(op.lane, one.shape, op.element(op.in(n, 0), one.column),
                            op.element(op.in(n, 1), one.column), weight_of(op, one),
                            sums + one.statistics);
  }
}

}  // namespace

void query_key_squares(const OpView& op, const Node& n) {
  squares(op, n, floats(op.out(n)));
}

void query_key_products(const OpView& op, const Node& n) {
  products(op, n, floats(op.out(n)));
}

void query_key_norm(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const std::int64_t columns = op.shared.attention.columns();
  if (!norms_heads(op)) {
    return op.kernels.copy_columns(op.lane, s.tokens, columns, op.in(n, 0), columns, op.out(n),
                                   columns);
  }
  float* sums = floats(op.out(n, 1));
  if (!shares_norm(op)) squares(op, n, sums);
  for (const HeadNorm& one : head_norms(op)) {
    op.kernels.strided_norm(op.lane, one.shape, op.element(op.in(n, 0), one.column),
                            weight_of(op, one), sums + one.statistics,
                            op.element(op.out(n), one.column));
  }
  const std::int64_t values = (s.heads + s.kv_heads) * s.head_dim;
  op.kernels.copy_columns(op.lane, s.tokens, s.kv_heads * s.head_dim,
                          op.element(op.in(n, 0), values), columns, op.element(op.out(n), values),
                          columns);
}

void query_key_norm_backward(const OpView& op, const Node& n) {
  if (!norms_heads(op)) return;
  float* sums = floats(op.out(n, 1));
  if (shares_norm(op)) {
    keep_one_holder(op, sums);
  } else {
    products(op, n, sums);
  }
  for (const HeadNorm& one : head_norms(op)) {
    float* d_weight = op.gradient(one.role);
    op.kernels.strided_norm_backward(op.lane, one.shape, op.element(op.in(n, 0), one.column),
                                     op.element(op.in(n, 1), one.column),
                                     floats(op.in(n, 2)) + one.statistics, sums + one.statistics,
                                     weight_of(op, one), op.element(op.out(n), one.column),
                                     d_weight == nullptr ? nullptr : d_weight + one.weight);
  }
}

}  // namespace rehearse::exec
