// SPDX-License-Identifier: Apache-2.0
// What a transformer's bodies run beside matrix products, fp32, row-major, single-threaded.
// Shapes stand at each argument; gradients of parameters are accumulated, all else is written.
#pragma once

#include <cstdint>

#include "exec/backend/shapes.h"

namespace rehearse::exec {

// --- norms (Ba et al. 2016; Zhang & Sennrich 2019), statistics kept per row ---
// y(rows, h) = (x - mean) * rstd * weight(h) + bias(h), statistics(rows, 2) = mean, rstd; bias may
// be null
void layer_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight,
                const float* bias, double epsilon, float* y, float* statistics);
// dx = its gradient + residual(rows, h) (may be null); d_weight(h), d_bias(h) accumulate
void layer_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                         const float* statistics, const float* weight, const float* residual,
                         float* dx, float* d_weight, float* d_bias);
// statistics(rows) = 1 / root mean square
void rms_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight,
              double epsilon, float* y, float* statistics);
void rms_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                       const float* statistics, const float* weight, const float* residual,
                       float* dx, float* d_weight);

// --- pointwise ---------------------------------------------------------------
void add_bias(std::int64_t rows, std::int64_t cols, const float* bias, float* y);
// out = x + y + bias(cols); bias may be null; out may be x or y
void add_residual(std::int64_t rows, std::int64_t cols, const float* x, const float* y,
                  const float* bias, float* out);
void add_column_sums(std::int64_t rows, std::int64_t cols, const float* y, float* sums);
void gelu(std::int64_t count, const float* u, float* g);  // tanh form, Hendrycks & Gimpel 2016
void gelu_backward(std::int64_t count, const float* dg, const float* u, float* du);  // du may be dg
// u(rows, 2 f): gate, then up; g(rows, f) = silu(gate) * up (Shazeer 2020)
void swiglu(std::int64_t rows, std::int64_t f, const float* u, float* g);
void swiglu_backward(std::int64_t rows, std::int64_t f, const float* dg, const float* u, float* du);
// Rotates q and k heads of qkv(tokens, columns) in place; position = (first + token) % sequence.
// `inverse`: the backward. Halves are paired as in Llama (i with i + d/2). Su et al. 2021.
void rope(std::int64_t tokens, std::int64_t first, std::int64_t sequence, std::int64_t heads,
          std::int64_t head_dim, std::int64_t columns, double theta, bool inverse, float* qkv);

// --- the optimizer -----------------------------------------------------------
// What AdamW takes of one step, rounded once: g = gradient * scale; m = beta1 m + rest1 g;
// v = beta2 v + rest2 g^2; p = keep p - size m / (root sqrt(v) + epsilon).
struct AdamwFactors {
  float scale = 1, beta1 = 0, rest1 = 1, beta2 = 0, rest2 = 1;
  float keep = 1, size = 0, root = 1, epsilon = 0;
};

// --- attention (Dao et al. 2022): causal, tiled, never s x s -----------------
// o(tokens, heads * d), lse(heads, tokens)
void attention(const AttentionShape& shape, const float* qkv, float* o, float* lse);
// dqkv(tokens, columns); delta(heads, tokens) is scratch
void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv,
                        const float* o, const float* lse, float* dqkv, float* delta);

// In parts (Liu et al. 2023): after all parts sum(tokens, heads * d) is o; lse(heads, tokens)
void attention_part(const AttentionPart& part, const float* qkv, const float* kv, float* sum,
                    float* lse);
// Adds to dq(tokens, heads * d) and dkv(tokens, kv_columns); the first part clears dq and computes
// delta(heads, tokens). lse: of all parts together.
void attention_part_backward(const AttentionPart& part, const float* d_o, const float* qkv,
                             const float* kv, const float* o, const float* lse, float* dq,
                             float* dkv, float* delta);

// --- embedding and loss ------------------------------------------------------
// Rows [first, first + rows) of the vocabulary are here; others give zeros.
void embed(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* table,
           std::int64_t first, std::int64_t rows, float* out);
// Of every token but `frozen`.
void embed_backward(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* dy,
                    std::int64_t first, std::int64_t rows, std::int32_t* order, float* d_table,
                    std::int64_t frozen = -1);
// Cross-entropy over the vocabulary rows [first, first + valid) of `logits`(rows, columns); columns
// beyond `valid` are padding. Each step is a partial result of one tensor-parallel rank.
void row_maxima(std::int64_t rows, std::int64_t columns, std::int64_t valid, const float* logits,
                float* maxima);
// sums(rows, 2): sum of exp(logit - maximum), logit of the target where it is here (else 0)
void row_sums(std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first,
              const float* logits, const float* maxima, const std::int32_t* targets, float* sums);
// Adds scale * loss of the rows to *loss, writes d_logits scaled likewise.
void loss_and_gradient(std::int64_t rows, std::int64_t columns, std::int64_t valid,
                       std::int64_t first, const float* logits, const float* maxima,
                       const float* sums, const std::int32_t* targets, float scale, float* d_logits,
                       float* loss);

}  // namespace rehearse::exec
