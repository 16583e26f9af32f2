// Attention block by block of keys, partial results merged by log-sum-exp (Liu et al. 2023, arXiv
// 2310.01889; Milakov & Gimelshein 2018): what context parallelism and sequence slices run.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "exec/kernels/gemm.h"
#include "exec/kernels/kernels.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kTile = 64;
using Scores = std::array<float, kTile * kTile>;

// One (sample, head) of a part: where its rows lie.
struct View {
  const float *q, *k, *v;
  std::int64_t q_stride, out_stride;  // of q; of o and what is shaped like it
  std::int64_t out, lse, dk;          // elements before the pair's own in o, lse and dkv
};

View view_of(const AttentionPart& part, const float* qkv, const float* kv, std::int64_t sample,
             std::int64_t head) {
  const AttentionShape& s = part.shape;
  const std::int64_t shared = head / (s.heads / s.kv_heads), first = sample * s.sequence;
  View at{.q_stride = s.columns(), .out_stride = s.heads * s.head_dim};
  at.q = qkv + first * s.columns() + head * s.head_dim;
  at.k = kv + first * part.key_stride + shared * s.head_dim;
  at.v = at.k + s.kv_heads * s.head_dim;
  at.out = first * at.out_stride + head * s.head_dim;
  at.lse = head * s.tokens + first;
  at.dk = first * s.kv_columns() + shared * s.head_dim;
  return at;
}

float scale_of(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

// Keys of [k0, k0 + cols) that query row `q` sees.
std::int64_t seen_by(const AttentionPart& part, std::int64_t q, std::int64_t k0,
                     std::int64_t cols) {
  return part.causal ? std::clamp<std::int64_t>(q - k0 + 1, 0, cols) : cols;
}

// One tile of query rows over the keys of the part: softmax so far, not yet divided by its sum.
struct Tile {
  explicit Tile(std::int64_t head_dim) : out(static_cast<std::size_t>(kTile * head_dim)) {}
  std::vector<float> out;  // (rows, head_dim)
  std::array<float, kTile> largest, sum;
  Scores scores;
};

void attend(const AttentionPart& part, const View& at, std::int64_t q0, std::int64_t rows,
            Tile& tile) {
  const std::int64_t d = part.shape.head_dim;
  const float scale = scale_of(part.shape);
  tile.largest.fill(-std::numeric_limits<float>::infinity());
  tile.sum.fill(0);
  std::fill(tile.out.begin(), tile.out.end(), 0.0F);
  const std::int64_t end = part.causal ? std::min(part.key_end, q0 + rows) : part.key_end;
  for (std::int64_t k0 = part.key_begin; k0 < end; k0 += kTile) {
    const std::int64_t cols = std::min(kTile, end - k0);
    tile_product(rows, cols, d, at.q + q0 * at.q_stride, at.q_stride, at.k + k0 * part.key_stride,
                 part.key_stride, tile.scores.data(), kTile, scale);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const std::int64_t seen = seen_by(part, q0 + r, k0, cols);
      float* row = tile.scores.data() + r * kTile;
      float top = tile.largest[i];
      for (std::int64_t c = 0; c < seen; ++c) top = std::max(top, row[c]);
      const float before = std::exp(tile.largest[i] - top);
      float total = tile.sum[i] * before;
      for (std::int64_t c = 0; c < seen; ++c) {
        row[c] = std::exp(row[c] - top);
        total += row[c];
      }
      std::fill(row + seen, row + cols, 0.0F);
      for (std::int64_t x = 0; x < d; ++x) tile.out[static_cast<std::size_t>(r * d + x)] *= before;
      tile.largest[i] = top;
      tile.sum[i] = total;
    }
    tile_add(rows, d, cols, tile.scores.data(), kTile, at.v + k0 * part.key_stride, part.key_stride,
             tile.out.data(), d);
  }
}

// o = o e^(lse - l) + part e^(its lse - l), l = log(e^lse + e^(its lse)).
void merge(const AttentionPart& part, const View& at, std::int64_t q0, std::int64_t rows,
           const Tile& tile, float* sum, float* lse) {
  const std::int64_t d = part.shape.head_dim;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const float own = tile.largest[i] + std::log(tile.sum[i]);
    float& all = lse[at.lse + q0 + r];
    float* to = sum + at.out + (q0 + r) * at.out_stride;
    const float* from = tile.out.data() + r * d;
    if (part.first) {
      all = own;
      for (std::int64_t x = 0; x < d; ++x) to[x] = from[x] / tile.sum[i];
      continue;
    }
    const float together = std::max(all, own) + std::log1p(std::exp(-std::fabs(all - own)));
    const float before = std::exp(all - together), now = std::exp(tile.largest[i] - together);
    for (std::int64_t x = 0; x < d; ++x) to[x] = to[x] * before + from[x] * now;
    all = together;
  }
}

// delta = sum over a row of d_o * o (Dao et al. 2022).
void row_products(const AttentionShape& s, const View& at, const float* d_o, const float* o,
                  float* delta) {
  for (std::int64_t r = 0; r < s.sequence; ++r) {
    const std::int64_t row = at.out + r * at.out_stride;
    double sum = 0;
    for (std::int64_t x = 0; x < s.head_dim; ++x) {
      sum += static_cast<double>(d_o[row + x]) * static_cast<double>(o[row + x]);
    }
    delta[at.lse + r] = static_cast<float>(sum);
  }
}

}  // namespace

void attention_part(const AttentionPart& part, const float* qkv, const float* kv, float* sum,
                    float* lse) {
  const AttentionShape& s = part.shape;
  Tile tile(s.head_dim);
  for (std::int64_t sample = 0; sample < s.tokens / s.sequence; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const View at = view_of(part, qkv, kv, sample, head);
      for (std::int64_t q0 = part.query_begin; q0 < part.query_end; q0 += kTile) {
        const std::int64_t rows = std::min(kTile, part.query_end - q0);
        attend(part, at, q0, rows, tile);
        merge(part, at, q0, rows, tile, sum, lse);
      }
    }
  }
}

void attention_part_backward(const AttentionPart& part, const float* d_o, const float* qkv,
                             const float* kv, const float* o, const float* lse, float* dq,
                             float* dkv, float* delta) {
  const AttentionShape& s = part.shape;
  const float scale = scale_of(s);
  const std::int64_t d = s.head_dim, dkv_stride = s.kv_columns();
  if (part.first) std::fill_n(dq, s.tokens * s.heads * d, 0.0F);
  Scores p, dp;
  for (std::int64_t sample = 0; sample < s.tokens / s.sequence; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const View at = view_of(part, qkv, kv, sample, head);
      if (part.first) row_products(s, at, d_o, o, delta);
      const float *g = d_o + at.out, *norm = lse + at.lse, *row_sum = delta + at.lse;
      float *dk = dkv + at.dk, *dv = dk + s.kv_heads * d;
      for (std::int64_t k0 = part.key_begin; k0 < part.key_end; k0 += kTile) {
        const std::int64_t cols = std::min(kTile, part.key_end - k0);
        const std::int64_t from = part.causal ? std::max(part.query_begin, k0) : part.query_begin;
        for (std::int64_t q0 = from; q0 < part.query_end; q0 += kTile) {
          const std::int64_t rows = std::min(kTile, part.query_end - q0);
          const float *q = at.q + q0 * at.q_stride, *k = at.k + k0 * part.key_stride;
          const float* gradient = g + q0 * at.out_stride;
          tile_product(rows, cols, d, q, at.q_stride, k, part.key_stride, p.data(), kTile, scale);
          tile_product(rows, cols, d, gradient, at.out_stride, at.v + k0 * part.key_stride,
                       part.key_stride, dp.data(), kTile, 1.0F);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t seen = seen_by(part, q0 + r, k0, cols);
            float *pr = p.data() + r * kTile, *dr = dp.data() + r * kTile;
            for (std::int64_t c = 0; c < seen; ++c) {
              pr[c] = std::exp(pr[c] - norm[q0 + r]);
              dr[c] = pr[c] * (dr[c] - row_sum[q0 + r]) * scale;
            }
            for (std::int64_t c = seen; c < cols; ++c) pr[c] = dr[c] = 0;
          }
          tile_add_transposed(cols, d, rows, p.data(), kTile, gradient, at.out_stride,
                              dv + k0 * dkv_stride, dkv_stride);
          tile_add(rows, d, cols, dp.data(), kTile, k, part.key_stride,
                   dq + at.out + q0 * at.out_stride, at.out_stride);
          tile_add_transposed(cols, d, rows, dp.data(), kTile, q, at.q_stride, dk + k0 * dkv_stride,
                              dkv_stride);
        }
      }
    }
  }
}

}  // namespace rehearse::exec
