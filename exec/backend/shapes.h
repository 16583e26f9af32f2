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

// A router's choice: the `per_token` experts with the largest scores; of equal ones the lower.
struct RouteShape {
  std::int64_t tokens = 0, experts = 0, per_token = 0;
  bool normalised = false;  // weights are divided by their sum
  // What the losses of the router weigh in d_scores and d_logits: auxiliary_loss E / (k T^2) times
  // an expert's count, and 2 z_loss / T times the log of the sum, over the T tokens of a
  // micro-batch. REQUIRES: tokens = T where `auxiliary` is not 0.
  float auxiliary = 0, z = 0;
};

// Copies of tokens, a row for each expert in [first, first + experts) that a token chose.
struct CopiesShape {
  std::int64_t tokens = 0, per_token = 0;
  std::int64_t first = 0, experts = 0;
  std::int64_t room = 0;  // rows: of more the places are counted, not written
};

// Rows that came from `sources` ranks, expert by expert from each, tokens in order. They lie in
// `members` buffers of `stride` rows, one behind the other: source s in buffer s % members.
struct ArrivedShape {
  std::int64_t sources = 0, members = 1, stride = 0;
  std::int64_t experts = 0;                // of the model
  std::int64_t first = 0, per_source = 0;  // those that are here: [first, first + per_source)
  std::int64_t room = 0;                   // likewise
};

// Products of several experts, each with a matrix of its own: rows [begin[e], begin[e + 1]) are
// expert e's. begin(experts + 1) is read by the host.
struct GroupedShape {
  std::int64_t experts = 0;
  const std::int32_t* begin = nullptr;
};

}  // namespace rehearse::exec
