// SPDX-License-Identifier: Apache-2.0
// Shapes that several kernels share.
#pragma once

#include <cstdint>

namespace rehearse::exec {

struct AttentionShape {
  std::int64_t tokens = 0, sequence = 0;  // tokens = samples * sequence
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t first = 0;  // rope: position of row 0; row t is at (first + t) % sequence
  constexpr std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
  constexpr std::int64_t kv_columns() const { return 2 * kv_heads * head_dim; }
};

// Attention of a rank's queries to one block of keys and values, of which every sample has
// shape.sequence rows, as of queries.
struct AttentionPart {
  AttentionShape shape;
  std::int64_t query_begin = 0, query_end = 0;  // rows of each sample that attend
  std::int64_t key_begin = 0, key_end = 0;      // rows of the block's that they see
  // elements from a key to the next; its value: kv_heads * head_dim on
  std::int64_t key_stride = 0;
  bool causal = false;  // query row i sees keys up to i only. REQUIRES: key_begin == 0
  bool first = false;   // of the parts: the sums begin here, for all rows
};

// The vocabulary columns of one tensor-parallel rank: [first, first + valid) are tokens, the rest
// of `columns` is padding.
struct VocabularyShape {
  std::int64_t columns = 0, valid = 0, first = 0;
  std::int64_t frozen = -1;  // a token whose row gets no gradient from the input; -1: none
};

// A residual sum and its norm: sum(rows, h) = x + y + bias(h), out = its LayerNorm or RMSNorm.
// REQUIRES: sum and out lie beside x and y.
struct SumNorm {
  std::int64_t rows = 0, h = 0;
  const void *x = nullptr, *y = nullptr, *bias = nullptr;  // bias may be null
  void* sum = nullptr;
  const void *weight = nullptr, *norm_bias = nullptr;  // norm_bias may be null; RMSNorm has none
  double epsilon = 0;
  void* out = nullptr;
  float* statistics = nullptr;  // as layer_norm or rms_norm writes them
};

}  // namespace rehearse::exec
