#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "exec/kernels/gemm.h"
#include "exec/kernels/kernels.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kTile = 64;
using Scores = std::array<float, kTile * kTile>;

// One (sample, head): where its rows lie.
struct View {
  const float *q, *k, *v;
  std::int64_t stride;
};

View view_of(const AttentionShape& s, const float* qkv, std::int64_t sample, std::int64_t head) {
  const std::int64_t shared = head / (s.heads / s.kv_heads);
  const float* row = qkv + sample * s.sequence * s.columns();
  return {row + head * s.head_dim, row + (s.heads + shared) * s.head_dim,
          row + (s.heads + s.kv_heads + shared) * s.head_dim, s.columns()};
}

float scale_of(const AttentionShape& s) {
  return 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

}  // namespace

void attention(const AttentionShape& s, const float* qkv, float* o, float* lse) {
  const float scale = scale_of(s);
  const std::int64_t out_stride = s.heads * s.head_dim;
  Scores scores;
  std::array<float, kTile> largest, sum;
  for (std::int64_t sample = 0; sample < s.tokens / s.sequence; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const View at = view_of(s, qkv, sample, head);
      float* out = o + sample * s.sequence * out_stride + head * s.head_dim;
      for (std::int64_t q0 = 0; q0 < s.sequence; q0 += kTile) {
        const std::int64_t rows = std::min(kTile, s.sequence - q0);
        largest.fill(-std::numeric_limits<float>::infinity());
        sum.fill(0);
        for (std::int64_t r = 0; r < rows; ++r) std::fill_n(out + (q0 + r) * out_stride, s.head_dim, 0.0F);
        for (std::int64_t k0 = 0; k0 < q0 + rows; k0 += kTile) {
          const std::int64_t cols = std::min(kTile, s.sequence - k0);
          tile_product(rows, cols, s.head_dim, at.q + q0 * at.stride, at.stride,
                       at.k + k0 * at.stride, at.stride, scores.data(), kTile, scale);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t seen = std::min(cols, q0 + r - k0 + 1);
            float* row = scores.data() + r * kTile;
            float top = largest[static_cast<std::size_t>(r)];
            for (std::int64_t c = 0; c < seen; ++c) top = std::max(top, row[c]);
            const float before = std::exp(largest[static_cast<std::size_t>(r)] - top);
            float total = sum[static_cast<std::size_t>(r)] * before;
            for (std::int64_t c = 0; c < seen; ++c) {
              row[c] = std::exp(row[c] - top);
              total += row[c];
            }
            for (std::int64_t c = std::max<std::int64_t>(seen, 0); c < cols; ++c) row[c] = 0;
            float* to = out + (q0 + r) * out_stride;
            if (before != 1.0F) {
              for (std::int64_t i = 0; i < s.head_dim; ++i) to[i] *= before;
            }
            largest[static_cast<std::size_t>(r)] = top;
            sum[static_cast<std::size_t>(r)] = total;
          }
          tile_add(rows, s.head_dim, cols, scores.data(), kTile, at.v + k0 * at.stride, at.stride,
                   out + q0 * out_stride, out_stride);
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto i = static_cast<std::size_t>(r);
          const float inverse = 1.0F / sum[i];
          float* to = out + (q0 + r) * out_stride;
          for (std::int64_t c = 0; c < s.head_dim; ++c) to[c] *= inverse;
          lse[head * s.tokens + sample * s.sequence + q0 + r] = largest[i] + std::log(sum[i]);
        }
      }
    }
  }
}

void attention_backward(const AttentionShape& s, const float* d_o, const float* qkv,
                        const float* o, const float* lse, float* dqkv, float* delta) {
  const float scale = scale_of(s);
  const std::int64_t out_stride = s.heads * s.head_dim;
  std::fill_n(dqkv, s.tokens * s.columns(), 0.0F);
  Scores p, dp;
  for (std::int64_t sample = 0; sample < s.tokens / s.sequence; ++sample) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const View at = view_of(s, qkv, sample, head);
      const std::int64_t shared = head / (s.heads / s.kv_heads);
      float* base = dqkv + sample * s.sequence * s.columns();
      float* dq = base + head * s.head_dim;
      float* dk = base + (s.heads + shared) * s.head_dim;
      float* dv = base + (s.heads + s.kv_heads + shared) * s.head_dim;
      const std::int64_t first = sample * s.sequence;
      const float* out = o + first * out_stride + head * s.head_dim;
      const float* g = d_o + first * out_stride + head * s.head_dim;
      const float* norm = lse + head * s.tokens + first;
      float* d = delta + head * s.tokens + first;
      for (std::int64_t r = 0; r < s.sequence; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < s.head_dim; ++i) {
          sum += static_cast<double>(g[r * out_stride + i]) * static_cast<double>(out[r * out_stride + i]);
        }
        d[r] = static_cast<float>(sum);
      }
      for (std::int64_t k0 = 0; k0 < s.sequence; k0 += kTile) {
        const std::int64_t cols = std::min(kTile, s.sequence - k0);
        for (std::int64_t q0 = k0; q0 < s.sequence; q0 += kTile) {
          const std::int64_t rows = std::min(kTile, s.sequence - q0);
          tile_product(rows, cols, s.head_dim, at.q + q0 * at.stride, at.stride,
                       at.k + k0 * at.stride, at.stride, p.data(), kTile, scale);
          tile_product(rows, cols, s.head_dim, g + q0 * out_stride, out_stride,
                       at.v + k0 * at.stride, at.stride, dp.data(), kTile, 1.0F);
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t seen = std::clamp<std::int64_t>(q0 + r - k0 + 1, 0, cols);
            float *pr = p.data() + r * kTile, *dr = dp.data() + r * kTile;
            for (std::int64_t c = 0; c < seen; ++c) {
              pr[c] = std::exp(pr[c] - norm[q0 + r]);
              dr[c] = pr[c] * (dr[c] - d[q0 + r]) * scale;
            }
            for (std::int64_t c = seen; c < cols; ++c) pr[c] = dr[c] = 0;
          }
          tile_add_transposed(cols, s.head_dim, rows, p.data(), kTile, g + q0 * out_stride, out_stride,
                              dv + k0 * s.columns(), s.columns());
          tile_add(rows, s.head_dim, cols, dp.data(), kTile, at.k + k0 * at.stride, at.stride,
                   dq + q0 * s.columns(), s.columns());
          tile_add_transposed(cols, s.head_dim, rows, dp.data(), kTile, at.q + q0 * at.stride,
                              at.stride, dk + k0 * s.columns(), s.columns());
        }
      }
    }
  }
}

}  // namespace rehearse::exec
