// SPDX-License-Identifier: Apache-2.0
// Products on a grid of tensor parallel ranks with r rows and c columns, by SUMMA (van de Geijn and
// Watts 1997), as Colossal-AI taught them (arXiv 2104.05343; hpcaitech/ColossalAI
// colossalai/legacy/nn/layer/parallel_2d/_operation.py and layers.py, 1df47edb).
//
// Activations and weights are both cut in rows and columns: a rank has 1/r of the samples and 1/c
// of the columns of every activation; how it has parameters says GridPart (sizes.h). A product goes
// over lcm(r, c) panels of the dimension that it sums over; squares have one of every rank of a row
// or column. Of panel l:
//
//   y = x w^T   BROADCAST x_l along the row, BROADCAST w_l along the column, y += x_l w_l^T
//   dx = dy w   BROADCAST w_l along the column, dx_l = dy w_l, REDUCE along the row to who has it
//   dw = dy^T x BROADCAST x_l along the row, dw_l = dy^T x_l, REDUCE along the column likewise
//
// So a product sends, over all panels and counted once for a group, |x|/r along its row and |w|/c
// along its column, and each gradient as much again. All ranks ask for row and column in one order,
// one collective at a time: the panel's number is the order of all groups. Nothing hides them
// (their own code sends the next panel beside the product of this one, in two buffers).
//
// Vectors (biases, weights of norms) are gathered along the column where they are read, their
// gradients summed and scattered. A norm's statistics are sums over a row, of values and squares.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/body/own/own_context.h"

namespace rehearse::own {

inline bool on_grid(const Context& c) {
  return c.s.grid.any();
}

// Columns of (tokens, stride) that a rank of a row has, of which a panel has `width`.
struct GridColumns {
  T array = kNone;
  std::int64_t stride = 0, width = 0;
};

// product.out = x w^T + bias; k: columns of x here, n: of the output here.
void grid_product(BodyBuilder& b, const Context& c, const Product& product, T x,
                  NodePhase phase = NodePhase::Main);
// product.out = dy w; k: columns of dy here, n: of x.
void grid_input_gradient(BodyBuilder& b, const Context& c, const Product& product, T dy,
                         NodePhase phase = NodePhase::Main);
// Adds to the gradients of the role's weight and bias. `in`, `out`: columns of x and dy here.
void grid_weight_gradient(BodyBuilder& b, const Context& c, ParameterRole role,
                          std::string_view name, std::int64_t in, std::int64_t out, T dy, T x);

// Products of a table t [V', h], of which each rank of a column has other rows: y = x t^T, of which
// `logits` has this rank's columns; dx = dy t; and the table's gradient dy^T x.
void grid_logits(BodyBuilder& b, const Context& c, ParameterRole table, T x, T logits);
void grid_logits_input(BodyBuilder& b, const Context& c, ParameterRole table, T logits, T dx);
void grid_logits_weight(BodyBuilder& b, const Context& c, ParameterRole table, T logits, T x);

void grid_norm(BodyBuilder& b, const Context& c, ParameterRole norm, std::string_view name, T x,
               T y, T statistics, NodePhase phase = NodePhase::Main);
// residual: kNone where none joins.
void grid_norm_backward(BodyBuilder& b, const Context& c, ParameterRole norm, std::string_view name,
                        T dy, T x, T statistics, T residual, T dx,
                        NodePhase phase = NodePhase::Main);

// What the ranks of a column have of a parameter, `elements` together, one behind the other.
T gather_vector(BodyBuilder& b, const Context& c, ParameterRole role, bool bias,
                std::int64_t elements, NodePhase phase);
// The other way: fp32 sums over this rank's tokens to the gradients of the parameter.
void scatter_vector(BodyBuilder& b, const Context& c, ParameterRole role, bool bias,
                    std::int64_t elements, T sums, NodePhase phase);

}  // namespace rehearse::own
