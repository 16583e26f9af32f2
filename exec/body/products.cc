// SPDX-License-Identifier: Apache-2.0
// Products, with the biases and the GELU that the backends fuse into them.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "exec/body/node_rows.h"

namespace rehearse::exec {

namespace {

// The rows that a product computes: all; or of a piece, from `first` on, under sequence parallelism
// so many of every rank's shard.
struct Rows {
  std::int64_t first = 0, count = 0;
  bool in_shards = false;
};
Rows rows_of(const Node& n) {
  return {.first = n.piece * n.m, .count = n.m, .in_shards = n.batch > 1};
}

// n and k: as the kernel has them.
PieceShape piece_of(const OpView& op, const Node& node, std::int64_t n, std::int64_t k) {
  return {.parts = node.batch, .rows = node.m, .apart = op.shared.shape.local, .n = n, .k = k};
}

// Row `first` of (tokens, columns).
std::byte* row(const OpView& op, std::byte* array, std::int64_t first, std::int64_t columns) {
  return op.element(array, first * columns);
}

}  // namespace

namespace {

// The GELU behind a product, or behind the pieces of one, where the product may do it; null: it may
// not, or there is none. Memory for what it makes is planned from its own node on: nothing that the
// product, its pieces and what travels beside them read or write may lie there.
const Node* gelu_behind(const OpView& op, const Node& n) {
  const std::vector<Node>& nodes = op.body->nodes;
  const auto whole = [&](const Node& node) { return n.pieces == 1 || node.pieces == 1; };
  const auto next = nodes.begin() + static_cast<std::ptrdiff_t>(op.carry.next);
  const auto behind = std::find_if(next, nodes.end(), whole);
  if (behind == nodes.end() || behind->kernel != Kernel::Gelu || behind->reads[0] != n.writes[0]) {
    return nullptr;
  }
  auto first = next - 1;  // of the pieces
  while (n.pieces > 1 && first != nodes.begin() && (first - 1)->pieces > 1) --first;
  const bool taken = std::any_of(first, behind, [&](const Node& node) {
    const auto lies_there = [&](std::int16_t tensor) {
      return overlap(op.tensor(tensor), op.tensor(behind->writes[0]));
    };
    return std::ranges::any_of(node.reads, lies_there) ||
           std::ranges::any_of(node.writes, lies_there);
  });
  return taken ? nullptr : &*behind;
}

}  // namespace

void linear(const OpView& op, const Node& n) {
  if (n.parameter == ParameterRole::Router) {
    return op.kernels.router_logits(op.lane, n.m, n.n, n.k, op.in(n, 0), op.parameter(n),
                                    op.bias(n), floats(op.out(n)));
  }
  // The bias of a row-parallel product is added after the sum over tp; by the first rank where a
  // norm reads that sum.
  const bool row_parallel =
      n.parameter == ParameterRole::Projection || n.parameter == ParameterRole::Down;
  const bool first = op.shared.model.norm_placement != NormPlacement::Before && op.coordinate == 0;
  const std::byte* added = !row_parallel || first ? op.bias(n) : nullptr;
  const Rows rows = rows_of(n);
  const PieceShape piece = piece_of(op, n, n.n, n.k);
  std::byte *x = row(op, op.in(n, 0), rows.first, n.k), *y = row(op, op.out(n), rows.first, n.n);
  if (const Node* behind = gelu_behind(op, n); behind != nullptr) {
    op.carry.gelu = true;
    std::byte* g = row(op, op.out(*behind), rows.first, n.n);
    if (rows.in_shards) {
      return op.kernels.linear_gelu_piece(op.lane, piece, x, op.parameter(n), added, y, g);
    }
    return op.kernels.linear_gelu(op.lane, n.m, n.n, n.k, x, op.parameter(n), added, y, g);
  }
  if (rows.in_shards) {
    return op.kernels.linear_piece(op.lane, piece, x, op.parameter(n), added, y);
  }
  op.kernels.linear(op.lane, n.m, n.n, n.k, x, op.parameter(n), added, y);
}

void linear_input(const OpView& op, const Node& n) {
  // What the activation's gradient reads is the gradient that Down's product makes, in place.
  const std::vector<Node>& nodes = op.body->nodes;
  const auto activation =
      std::find_if(nodes.begin() + static_cast<std::ptrdiff_t>(op.carry.next), nodes.end(),
                   [&](const Node& next) {
                     return next.kernel == Kernel::GeluBackward && next.reads[0] == n.writes[0];
                   });
  const Rows rows = rows_of(n);
  const PieceShape piece = piece_of(op, n, n.k, n.n);
  std::byte *dy = row(op, op.in(n, 0), rows.first, n.k), *dx = row(op, op.out(n), rows.first, n.n);
  if (activation != nodes.end()) {
    std::byte* u = row(op, op.in(*activation, 1), rows.first, n.n);
    if (rows.in_shards) {
      return op.kernels.linear_input_gelu_piece(op.lane, piece, dy, op.parameter(n), u, dx);
    }
    return op.kernels.linear_input_gelu(op.lane, n.m, n.k, n.n, dy, op.parameter(n), u, dx);
  }
  if (rows.in_shards) {
    return op.kernels.linear_input_piece(op.lane, piece, dy, op.parameter(n), dx);
  }
  op.kernels.linear_input(op.lane, n.m, n.k, n.n, dy, op.parameter(n), dx);
}

void linear_weight(const OpView& op, const Node& n) {
  float* sums = op.bias_gradient(n);
  // Row-parallel: reads (gathered dy, x, own dy); column-parallel: (dy, gathered x).
  const bool row_parallel = n.reads.size() > 2;
  if (sums != nullptr && !row_parallel) {
    return op.kernels.linear_weight_bias(op.lane, n.k, n.n, n.m, op.in(n, 0), op.in(n, 1),
                                         op.gradient(n), sums);
  }
  op.kernels.linear_weight(op.lane, n.k, n.n, n.m, op.in(n, 0), op.in(n, 1), op.gradient(n));
  if (sums == nullptr) return;
  op.kernels.add_column_sums(op.lane, op.shared.shape.local, n.n, op.in(n, 2), sums);
}

void logits(const OpView& op, const Node& n) {
  const std::int64_t columns = op.shared.shape.logit_columns;
  op.kernels.logits(op.lane, n.m, n.n, n.k, columns, op.element(op.in(n, 0), op.carry.chunk * n.k),
                    op.parameter(n), op.out(n));
  if (const double cap = op.shared.model.final_softcap; cap > 0) {
    op.kernels.softcap(op.lane, n.m * columns, cap, op.out(n));
  }
}

void logits_input(const OpView& op, const Node& n) {
  op.kernels.logits_input(op.lane, n.m, n.k, n.n, op.shared.shape.logit_columns, op.in(n, 0),
                          op.parameter(n), op.element(op.out(n), op.carry.chunk * n.n));
}

void logits_weight(const OpView& op, const Node& n) {
  op.kernels.logits_weight(op.lane, n.k, n.n, n.m, op.shared.shape.logit_columns, op.in(n, 0),
                           op.element(op.in(n, 1), op.carry.chunk * n.m), op.gradient(n));
  op.carry.chunk += n.k;
}

}  // namespace rehearse::exec
