// SPDX-License-Identifier: Apache-2.0
// What a rank of a grid does of products by SUMMA (schedules/body/own/own_grid.h): panels out of
// arrays and parameters and back, their products, norms of rows that it shares.
#include <cstdint>

#include "exec/body/grid_panels.h"
#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

float* gradient_of(const OpView& op, const Node& n) {
  return n.of_bias ? op.bias_gradient(n) : op.gradient(n);
}

SharedNorm norm_shape(const OpView& op) {
  const Transformer& m = op.shared.model;
  const RankShape& s = op.shared.shape;
  return {.rows = s.local,
          .h = s.hidden,
          .total = m.hidden,
          .centred = m.norm == NormKind::LayerNorm,
          .epsilon = m.norm_epsilon,
          .weight_offset = m.norm_from_one ? 1.0 : 0.0};
}

// Zeros, to which kernels of gradients add.
float* cleared(const OpView& op, const Node& n, std::size_t i, std::int64_t elements) {
  op.device.clear(op.lane, op.out(n, i), 4 * elements);
  return floats(op.out(n, i));
}

}  // namespace

void take_panel(const OpView& op, const Node& n) {
  if (!owns_panel(op, n)) return;
  const std::byte* from = n.reads.empty() ? parameter_of(op, n) : op.in(n, 0);
  const std::int64_t before = n.panel * n.n * op.shared.shape.element;
  op.kernels.copy_columns(op.lane, n.m, n.n, from + before, n.k, op.out(n), n.n);
}

void store_panel(const OpView& op, const Node& n) {
  if (!owns_panel(op, n)) return;
  op.kernels.copy_columns(op.lane, n.m, n.n, op.in(n, 0), n.n, op.element(op.out(n), n.panel * n.n),
                          n.k);
}

void panel_linear(const OpView& op, const Node& n) {
  op.kernels.linear(op.lane, n.m, n.n, n.k, op.in(n, 0), op.in(n, 1),
                    n.reads.size() > 2 ? op.in(n, 2) : nullptr, op.out(n));
}

void panel_input(const OpView& op, const Node& n) {
  op.kernels.linear_input(op.lane, n.m, n.k, n.n, op.in(n, 0), op.in(n, 1), op.out(n));
}

void panel_weight(const OpView& op, const Node& n) {
  op.kernels.linear_weight(op.lane, n.k, n.n, n.m, op.in(n, 0), op.in(n, 1),
                           cleared(op, n, 0, n.m * n.n));
}

void add_panel(const OpView& op, const Node& n) {
  op.kernels.add_residual(op.lane, n.m, n.n, op.in(n, 0), op.in(n, 1), nullptr, {}, op.out(n));
}

void add_shard(const OpView& op, const Node& n) {
  if (!owns_panel(op, n)) return;
  op.kernels.add(op.lane, n.n, floats(op.in(n, 0)), gradient_of(op, n) + n.panel * n.n);
}

void column_sums(const OpView& op, const Node& n) {
  op.kernels.add_column_sums(op.lane, n.m, n.n, op.in(n, 0), cleared(op, n, 0, n.n));
}

void position_sums(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.kernels.position_gradient(op.lane, s.local, s.hidden, 0, op.shared.plan.sequence_length,
                               op.in(n, 0), cleared(op, n, 0, n.n));
}

void row_moments(const OpView& op, const Node& n) {
  op.kernels.row_moments(op.lane, norm_shape(op), op.in(n, 0), floats(op.out(n)));
}

void row_products(const OpView& op, const Node& n) {
  op.kernels.row_gradients(op.lane, norm_shape(op), op.in(n, 0), op.in(n, 1), floats(op.in(n, 2)),
                           op.in(n, 3), floats(op.out(n)));
}

void shared_norm(const OpView& op, const Node& n) {
  op.kernels.shared_norm(op.lane, norm_shape(op), op.in(n, 0), op.in(n, 1),
                         n.reads.size() > 2 ? op.in(n, 2) : nullptr, floats(op.out(n, 1)),
                         op.out(n));
}

void shared_norm_backward(const OpView& op, const Node& n) {
  const std::int64_t h = op.shared.shape.hidden;
  op.kernels.shared_norm_backward(op.lane, norm_shape(op), op.in(n, 0), op.in(n, 1),
                                  floats(op.in(n, 2)), floats(op.in(n, 3)), op.in(n, 4),
                                  n.reads.size() > 5 ? op.in(n, 5) : nullptr, op.out(n),
                                  cleared(op, n, 1, h), n.of_bias ? cleared(op, n, 2, h) : nullptr);
}

}  // namespace rehearse::exec
