// SPDX-License-Identifier: Apache-2.0
// How long the arrays of a kernel's row are [B], in the order of its arguments (their shapes stand
// in kernel_rows.inc): what the double takes a launch to read and write. Where rows lie apart, from
// the first to the end of the last; a number of rows that only the device knows is all that there
// is room for. A row of kernel_rows.inc that has no line here does not compile.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/backend/shapes.h"

namespace rehearse::cuda_double {

using Extents = std::vector<std::int64_t>;
using Int = std::int64_t;

inline Int apart(Int rows, Int cols, Int stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + cols;
}
inline Int apart(const exec::StridedNorm& s) {
  return apart(s.rows, s.groups * s.width, s.stride);
}
// A piece's rows, of which each has so many columns.
inline Int apart(const exec::PieceShape& p, Int cols) {
  return apart(p.parts, p.rows, p.apart) * cols;
}

// clang-format off
// e: bytes of an element
#define EXTENTS_linear e * m * k, e * n * k, e * n, e * m * n
#define EXTENTS_linear_gelu e * m * k, e * n * k, e * n, e * m * n, e * m * n
#define EXTENTS_logits e * m * k, e * n * k, e * apart(m, n, stride)
#define EXTENTS_linear_input e * m * n, e * n * k, e * m * k
#define EXTENTS_linear_input_gelu e * m * n, e * n * k, e * m * k, e * m * k
#define EXTENTS_linear_weight e * m * n, e * m * k, 4 * n * k
#define EXTENTS_linear_weight_bias e * m * n, e * m * k, 4 * n * k, 4 * n
#define EXTENTS_logits_input e * apart(m, n, stride), e * n * k, e * m * k
#define EXTENTS_logits_weight e * apart(m, n, stride), e * m * k, 4 * n * k
#define EXTENTS_linear_piece \
  e * apart(piece, piece.k), e * piece.n * piece.k, e * piece.n, e * apart(piece, piece.n)
#define EXTENTS_linear_gelu_piece \
  e * apart(piece, piece.k), e * piece.n * piece.k, e * piece.n, e * apart(piece, piece.n), \
  e * apart(piece, piece.n)
#define EXTENTS_linear_input_piece \
  e * apart(piece, piece.n), e * piece.n * piece.k, e * apart(piece, piece.k)
#define EXTENTS_linear_input_gelu_piece \
  e * apart(piece, piece.n), e * piece.n * piece.k, e * apart(piece, piece.k), \
  e * apart(piece, piece.k)
#define EXTENTS_layer_norm e * rows * h, e * h, e * h, e * rows * h, 8 * rows
#define EXTENTS_layer_norm_backward \
  e * rows * h, e * rows * h, 8 * rows, e * h, e * rows * h, e * rows * h, 4 * h, 4 * h
#define EXTENTS_rms_norm e * rows * h, e * h, e * rows * h, 4 * rows
#define EXTENTS_rms_norm_backward \
  e * rows * h, e * rows * h, 4 * rows, e * h, e * rows * h, e * rows * h, 4 * h
// x, y, bias, weight, norm_bias, sum, out, statistics
#define EXTENTS_SUM_NORM(numbers) \
  e * call.rows * call.h, e * call.rows * call.h, e * call.h, e * call.h, e * call.h, \
  e * call.rows * call.h, e * call.rows * call.h, 4 * numbers * call.rows
#define EXTENTS_add_layer_norm EXTENTS_SUM_NORM(2)
#define EXTENTS_add_rms_norm EXTENTS_SUM_NORM(1)
#define EXTENTS_row_squares e * apart(shape), 4 * shape.rows * shape.groups
#define EXTENTS_strided_norm \
  e * apart(shape), e * shape.width, 4 * shape.rows * shape.groups, e * apart(shape)
#define EXTENTS_row_products \
  e * apart(shape), e * apart(shape), e * shape.width, 4 * shape.rows * shape.groups
#define EXTENTS_strided_norm_backward \
  e * apart(shape), e * apart(shape), 4 * shape.rows * shape.groups, \
  4 * shape.rows * shape.groups, e * shape.width, e * apart(shape), 4 * shape.width
#define EXTENTS_ROWS e * shape.rows * shape.h
#define EXTENTS_ROW_SUMS 4 * shape.rows * shape.sums()
#define EXTENTS_row_moments EXTENTS_ROWS, EXTENTS_ROW_SUMS
#define EXTENTS_shared_norm EXTENTS_ROWS, e * shape.h, e * shape.h, EXTENTS_ROW_SUMS, EXTENTS_ROWS
#define EXTENTS_row_gradients \
  EXTENTS_ROWS, EXTENTS_ROWS, EXTENTS_ROW_SUMS, e * shape.h, EXTENTS_ROW_SUMS
#define EXTENTS_shared_norm_backward \
  EXTENTS_ROWS, EXTENTS_ROWS, EXTENTS_ROW_SUMS, EXTENTS_ROW_SUMS, e * shape.h, EXTENTS_ROWS, \
  EXTENTS_ROWS, 4 * shape.h, 4 * shape.h
#define EXTENTS_add_residual e * rows * cols, e * rows * cols, e * cols, e * rows * cols
#define EXTENTS_dropout e * rows * cols, e * rows * cols
#define EXTENTS_add_column_sums e * rows * cols, 4 * cols
#define EXTENTS_add_positions e * rows * cols, e * sequence * cols, e * rows * cols
#define EXTENTS_position_gradient e * rows * cols, 4 * sequence * cols
#define EXTENTS_activation e * count, e * count
#define EXTENTS_activation_backward e * count, e * count, e * count
#define EXTENTS_gated e * 2 * rows * f, e * rows * f
#define EXTENTS_gated_backward e * rows * f, e * 2 * rows * f, e * 2 * rows * f
#define EXTENTS_temper_queries e * shape.tokens * shape.columns()
#define EXTENTS_rope e * shape.tokens * shape.columns()
#define EXTENTS_LATENT_QKV e * shape.tokens * shape.heads * (2 * shape.key() + shape.values)
#define EXTENTS_LATENT \
  e * shape.tokens * shape.heads * shape.key(), \
  e * shape.tokens * shape.heads * (shape.plain + shape.values), e * shape.tokens * shape.rotary
#define EXTENTS_join_heads EXTENTS_LATENT, EXTENTS_LATENT_QKV
#define EXTENTS_split_heads EXTENTS_LATENT_QKV, EXTENTS_LATENT
#define EXTENTS_ATTENTION_OUT(s) e * (s).tokens * (s).heads * (s).values()
#define EXTENTS_ATTENTION_ROWS(s) 4 * (s).tokens * (s).heads
#define EXTENTS_attention \
  e * shape.tokens * shape.columns(), EXTENTS_ATTENTION_OUT(shape), \
  EXTENTS_ATTENTION_ROWS(shape)
#define EXTENTS_attention_backward \
  EXTENTS_ATTENTION_OUT(shape), e * shape.tokens * shape.columns(), \
  EXTENTS_ATTENTION_OUT(shape), EXTENTS_ATTENTION_ROWS(shape), \
  e * shape.tokens * shape.columns(), EXTENTS_ATTENTION_ROWS(shape)
#define EXTENTS_PART_KEYS e * apart(part.shape.tokens, part.shape.kv_columns(), part.key_stride)
#define EXTENTS_attention_part \
  e * part.shape.tokens * part.shape.columns(), EXTENTS_PART_KEYS, \
  4 * part.shape.tokens * part.shape.heads * part.shape.values(), \
  EXTENTS_ATTENTION_ROWS(part.shape)
#define EXTENTS_attention_part_backward \
  EXTENTS_ATTENTION_OUT(part.shape), e * part.shape.tokens * part.shape.columns(), \
  EXTENTS_PART_KEYS, EXTENTS_ATTENTION_OUT(part.shape), EXTENTS_ATTENTION_ROWS(part.shape), \
  4 * part.shape.tokens * part.shape.heads * part.shape.head_dim, \
  4 * part.shape.tokens * part.shape.kv_columns(), EXTENTS_ATTENTION_ROWS(part.shape)
#define EXTENTS_sink_gradient \
  EXTENTS_ATTENTION_ROWS(shape), EXTENTS_ATTENTION_ROWS(shape), 4 * shape.heads
#define EXTENTS_embed 4 * tokens, e * shape.columns * h, e * tokens * h
#define EXTENTS_embed_backward 4 * tokens, e * tokens * h, 4 * tokens, 4 * shape.columns * h
#define EXTENTS_softcap e * count
#define EXTENTS_row_maxima e * rows * shape.columns, 4 * rows
#define EXTENTS_row_sums e * rows * shape.columns, 4 * rows, 4 * rows, 8 * rows
#define EXTENTS_loss_and_gradient 4 * rows, 8 * rows, 4 * rows, e * rows * shape.columns, 4
#define EXTENTS_cross_entropy 4 * rows, 4 * rows, 8 * rows, e * rows * shape.columns, 4
#define EXTENTS_router_logits e * m * k, e * n * k, e * n, 4 * m * n
#define EXTENTS_COPIES(s) 4 * (s).tokens * (s).per_token
#define EXTENTS_route \
  4 * shape.tokens * shape.experts, EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), \
  4 * shape.tokens * shape.experts, 4 * shape.tokens
#define EXTENTS_count_chosen 4 * copies, 4 * experts
#define EXTENTS_route_backward \
  EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), \
  4 * shape.tokens * shape.experts, 4 * shape.tokens, 4 * shape.experts, \
  e * shape.tokens * shape.experts
#define EXTENTS_drop_copies EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), EXTENTS_COPIES(shape)
#define EXTENTS_count_dropped EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), 8 * shape.experts
#define EXTENTS_sort_copies \
  EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), 4 * shape.room, 4 * (shape.experts + 1)
#define EXTENTS_sort_rows \
  4 * shape.sources * (shape.experts + 1), 4 * shape.room, 4 * (shape.per_source + 1)
#define EXTENTS_sort_visits \
  4 * shape.ranks * shape.tokens * shape.per_token, 4 * shape.leaving(), 4 * (shape.ranks + 1), \
  EXTENTS_COPIES(shape), EXTENTS_COPIES(shape), 4 * shape.ranks * (shape.ranks + 1), \
  4 * shape.room * shape.per_token
#define EXTENTS_count_choices 4 * copies, 8
#define EXTENTS_count_not_finite 4 * count, 8
#define EXTENTS_count_rows 4 * shape.lines * (shape.experts + 1), 8 * shape.experts, 8
#define EXTENTS_gather_rows 4 * count, 1, e * count * cols
#define EXTENTS_scatter_rows 4 * count, e * count * cols, 1
#define EXTENTS_weigh_copies 4 * tokens * per_token, 4 * tokens * per_token, 1, e * tokens * cols
#define EXTENTS_weigh_backward \
  4 * tokens * per_token, 4 * tokens * per_token, 1, e * tokens * cols, 1, \
  4 * tokens * per_token
#define EXTENTS_gate e * rows, e * rows * cols, e * rows * cols
#define EXTENTS_gate_backward e * rows, e * rows * cols, e * rows * cols, e * rows, e * rows * cols
#define EXTENTS_grouped_linear \
  e * shape.rows * k, e * shape.experts * n * k, e * shape.experts * n, e * shape.rows * n
#define EXTENTS_grouped_linear_input \
  e * shape.rows * n, e * shape.experts * n * k, e * shape.rows * k
#define EXTENTS_grouped_linear_weight \
  e * shape.rows * n, e * shape.rows * k, 4 * shape.experts * n * k
#define EXTENTS_grouped_column_sums e * shape.rows * cols, 4 * shape.experts * cols
#define EXTENTS_clamped_glu e * 2 * shape.rows * shape.f, e * shape.rows * shape.f
#define EXTENTS_clamped_glu_backward \
  e * shape.rows * shape.f, e * 2 * shape.rows * shape.f, e * 2 * shape.rows * shape.f
#define EXTENTS_add 4 * count, 4 * count
#define EXTENTS_cast 4 * count, e * count
#define EXTENTS_copy_columns e * apart(rows, cols, from_stride), e * apart(rows, cols, to_stride)
#define EXTENTS_cast_columns 4 * rows * cols, e * apart(rows, cols, to_stride)
// clang-format on

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
namespace kernel_extents {
using namespace exec;
using Element = void;
#define KERNEL(name, parameters, arguments)       \
  inline Extents name(Int e, SPREAD parameters) { \
    return {EXTENTS_##name};                      \
  }
#include "exec/backend/kernel_rows.inc"
}  // namespace kernel_extents
#pragma GCC diagnostic pop

}  // namespace rehearse::cuda_double
