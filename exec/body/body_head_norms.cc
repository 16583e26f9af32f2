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

#include "exec/body/body_state.h"

namespace rehearse::exec {

// Llama 4 norms heads once they are rotated, by R, and multiplied by a factor c: c R x divided by
// the root of c^2 mean(x^2) + epsilon is R times x by the root of mean(x^2) + epsilon / c^2. So its
// norm comes before the rotation as others' do.
std::array<OpCursor::State::HeadNorm, 2> OpCursor::State::head_norms() const {
  const Transformer& m = shared.model;
  const RankShape& s = shared.shape;
  const bool whole = m.query_key_norm_whole;
  const double factor = m.query_key_unit_norm ? shared.rotary.front().attention_factor : 1;
  const auto norm = [&](ParameterRole role, std::int64_t heads, std::int64_t of_all_ranks) {
    return HeadNorm{.role = role,
                    .shape = {.rows = s.tokens,
                              .groups = whole ? 1 : heads,
                              .width = whole ? heads * s.head_dim : s.head_dim,
                              .stride = s.qkv,
                              .total = whole ? of_all_ranks * s.head_dim : s.head_dim,
                              .epsilon = m.norm_epsilon / (factor * factor),
                              .weight_offset = m.norm_from_one ? 1.0 : 0.0}};
  };
  HeadNorm queries = norm(ParameterRole::QueryNorm, s.heads, m.heads);
  HeadNorm keys = norm(ParameterRole::KeyNorm, s.kv_heads, m.kv_heads);
  keys.column = s.heads * s.head_dim;
  keys.statistics = s.tokens * queries.shape.groups;
  if (whole && shared.layout.key_value_replicas() > 1) keys.weight = key_head() * s.head_dim;
  return {queries, keys};
}

const std::byte* OpCursor::State::norm_weight(const HeadNorm& one) const {
  const std::byte* weight = parameter_at(role(&Roles::weight, one.role));
  return weight == nullptr ? nullptr : weight + one.weight * shared.shape.element;
}

void OpCursor::State::keep_one_holder(float* sums) const {
  if (coordinate % shared.layout.key_value_replicas() == 0) return;
  const HeadNorm keys = head_norms()[1];
  device.clear(lane, sums + keys.statistics, keys.shape.rows * 4);
}

// Reads q, k, v as the product gave them.
void OpCursor::State::query_key_squares(const Node& n, float* sums) const {
  for (const HeadNorm& one : head_norms()) {
    kernels.row_squares(lane, one.shape, element(r(n, 0), one.column), sums + one.statistics);
  }
  if (shares_query_norm()) keep_one_holder(sums);
}

void OpCursor::State::query_key_norm(const Node& n) const {
  const RankShape& s = shared.shape;
  if (!norms_heads()) {
    return kernels.copy_columns(lane, s.tokens, s.qkv, r(n, 0), s.qkv, w(n), s.qkv);
  }
  float* sums = floats(w(n, 1));
  if (!shares_query_norm()) query_key_squares(n, sums);
  for (const HeadNorm& one : head_norms()) {
    kernels.strided_norm(lane, one.shape, element(r(n, 0), one.column), norm_weight(one),
                         sums + one.statistics, element(w(n), one.column));
  }
  const std::int64_t values = (s.heads + s.kv_heads) * s.head_dim;
  kernels.copy_columns(lane, s.tokens, s.kv_heads * s.head_dim, element(r(n, 0), values), s.qkv,
                       element(w(n), values), s.qkv);
}

// Reads dqkv, and behind it q, k, v as the product gave them.
void OpCursor::State::query_key_products(const Node& n, float* sums) const {
  for (const HeadNorm& one : head_norms()) {
    kernels.row_products(lane, one.shape, element(r(n, 0), one.column),
                         element(r(n, 1), one.column), norm_weight(one), sums + one.statistics);
  }
}

void OpCursor::State::query_key_norm_backward(const Node& n) const {
  if (!norms_heads()) return;
  float* sums = floats(w(n, 1));
  if (shares_query_norm()) {
    keep_one_holder(sums);
  } else {
    query_key_products(n, sums);
  }
  for (const HeadNorm& one : head_norms()) {
    float* d_weight = gradient_at(role(&Roles::weight, one.role));
    kernels.strided_norm_backward(
        lane, one.shape, element(r(n, 0), one.column), element(r(n, 1), one.column),
        floats(r(n, 2)) + one.statistics, sums + one.statistics, norm_weight(one),
        element(w(n), one.column), d_weight == nullptr ? nullptr : d_weight + one.weight);
  }
}

}  // namespace rehearse::exec
