// SPDX-License-Identifier: Apache-2.0
// What an AttentionForm makes of the scores of one head (exec/backend/shapes.h).
#pragma once

#include "exec/cuda/kernels/attention/attention.cuh"
#include "exec/cuda/kernels/random.cuh"

namespace rehearse::exec::cuda {

// 2^(-8 k / n) for the n heads of the largest power of two, then odd powers of its root (Press et
// al. 2022).
__device__ __forceinline__ float alibi_slope(std::int64_t head, std::int64_t heads) {
  std::int64_t whole = 1;
  while (2 * whole <= heads) whole *= 2;
  const double steps =
      head < whole ? static_cast<double>(head + 1) : static_cast<double>(head - whole) + 0.5;
  return static_cast<float>(exp2(-8.0 * steps / static_cast<double>(whole)));
}

// Scores of a (sample, head) between query and key rows. Plain: with a scale alone.
struct Scores {
  float scale, cap, slope;
  int distance;  // positions from a key row to the query row of the same number
  DropoutShape drop;
  std::int64_t first_row, first_key;  // of dropout: query row 0, key row 0
  int head;
  __device__ __forceinline__ Scores(const AttentionPart& p, float scale_of_them,
                                    std::int64_t sample, std::int64_t number)
      : scale(scale_of_them),
        cap(static_cast<float>(p.shape.form.softcap)),
        slope(p.shape.form.alibi_heads > 0
                  ? alibi_slope(p.shape.form.first_head + number, p.shape.form.alibi_heads)
                  : 0.0F),
        distance(static_cast<int>(p.query_position - p.key_position)),
        drop(p.shape.form.dropout),
        first_row(sample * p.shape.form.dropout_sequence + p.query_position),
        first_key(p.key_position),
        head(static_cast<int>(p.shape.form.first_head + number)) {}
  __device__ __forceinline__ float capped(float product) const {
    return cap > 0 ? cap * tanhf(product * scale / cap) : product * scale;
  }
  // d capped / d (product * scale)
  __device__ __forceinline__ float steepness(float capped_score) const {
    return cap > 0 ? 1.0F - capped_score / cap * (capped_score / cap) : 1.0F;
  }
  __device__ __forceinline__ float biased(float capped_score, int query, int key) const {
    return capped_score + slope * static_cast<float>(key - query - distance);
  }
  // What dropout multiplies the weight by.
  __device__ __forceinline__ float factor(int query, int key) const {
    return drop.threshold > 0 ? kept(drop, first_row + query, first_key + key, head) : 1.0F;
  }
};

// What a row's softmax begins with: a sink is a key that is seen by all and has no value.
struct Beginning {
  float top, sum;
};
template <class T>
__device__ __forceinline__ Beginning beginning(const AttentionPart& p, std::int64_t number) {
  if (!p.first || p.shape.form.sinks == nullptr) return {-INFINITY, 0};
  return {widen(static_cast<const T*>(p.shape.form.sinks)[number]), 1};
}

}  // namespace rehearse::exec::cuda
