// SPDX-License-Identifier: Apache-2.0
// What the attention kernels share: where a head's rows lie, and the two families' launch
// functions.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

constexpr float kLog2E = 1.4426950408889634F;

// A call of either family. The whole: part covers all queries and keys of qkv, causal, and o or
// dqkv is written. A part: kv is the block's first key, and the fp32 arrays are added to.
template <class T>
struct ForwardCall {
  AttentionPart part;
  const T *qkv = nullptr, *kv = nullptr;
  T* o = nullptr;  // of the whole
  float *sum = nullptr, *lse = nullptr;
  AttentionEngine engine{};
};
template <class T>
struct BackwardCall {
  AttentionPart part;
  const T *d_o = nullptr, *qkv = nullptr, *kv = nullptr;
  const float *lse = nullptr, *delta = nullptr;
  T* dqkv = nullptr;  // of the whole
  float *dq = nullptr, *dkv = nullptr;
  // dK and dV of a tile of keys by so many blocks on tensor cores, each with a share of the
  // queries; above 1: shares(splits, tokens, kv_columns) has their sums.
  int splits = 1;
  float* shares = nullptr;
  AttentionEngine engine{};
};
// Keys of a block that computes dK and dV on tensor cores.
constexpr int kKeyRows = 64;

// Which rows of a sample meet. Of the whole it is known when compiling, but for the sequence.
// kWindows: there may be a window.
template <bool kWhole, bool kWindows = false>
struct Extent {
  int query_begin, query_end, key_begin, key_end;
  int back;  // query row i sees keys from i + back on
  bool causal;
  __device__ __forceinline__ explicit Extent(const AttentionPart& p)
      : query_begin(kWhole ? 0 : static_cast<int>(p.query_begin)),
        query_end(static_cast<int>(kWhole ? p.shape.sequence : p.query_end)),
        key_begin(kWhole ? 0 : static_cast<int>(p.key_begin)),
        key_end(static_cast<int>(kWhole ? p.shape.sequence : p.key_end)),
        back(p.shape.form.window > 0
                 ? static_cast<int>(p.query_position - p.key_position - p.shape.form.window + 1)
                 : -INT32_MAX / 2),
        causal(kWhole || p.causal) {}
  // The first of the tiles of keys, `size` each, that a query from `first` on may see.
  __device__ __forceinline__ int first_tile(int first, int size) const {
    const int begin = first + back - key_begin;
    return key_begin + (begin > 0 ? begin / size * size : 0);
  }
  // One past the last query that sees one of the keys before `end`.
  __device__ __forceinline__ int queries_of(int end) const {
    return end - back < query_end ? end - back : query_end;
  }
  // One past the last key that a query of [first, first + count) sees.
  __device__ __forceinline__ int keys_of(int first, int count) const {
    return causal && first + count < key_end ? first + count : key_end;
  }
  // Does a query before `query_end` see the key?
  __device__ __forceinline__ bool reach(int query_end, int key) const {
    return !causal || key < query_end;
  }
  // Does every query from `first` on see the keys before `end`?
  __device__ __forceinline__ bool all_see(int first, int end) const {
    return causal ? end - 1 <= first : kWhole || end <= key_end;
  }
  __device__ __forceinline__ bool sees(int query, int key) const {
    return (causal ? key <= query : kWhole || key < key_end) && (!kWindows || key >= query + back);
  }
};

// qkv(tokens, columns): the q heads, then the k heads, then the v heads of a token side by side,
// the last as wide as values().
template <class T>
struct Head {
  const T *q, *k;                   // first row of the sample
  int to_value;                     // elements from a token's key to its value
  std::int64_t q_stride, k_stride;  // elements from token to token
};
// Which keys a head shares: once, outside of loops.
__device__ __forceinline__ int keys_of_head(const AttentionShape& s, int head) {
  return head / (static_cast<int>(s.heads) / static_cast<int>(s.kv_heads));
}
// `shared`: keys_of_head
template <bool kWhole, class T>
__device__ __forceinline__ Head<T> head_of(const AttentionPart& p, const T* qkv, const T* kv,
                                           std::int64_t sample, std::int64_t head,
                                           std::int64_t shared) {
  const AttentionShape& s = p.shape;
  const std::int64_t first = sample * s.sequence;
  const std::int64_t k_stride = kWhole ? s.columns() : p.key_stride;
  const T* row = qkv + first * s.columns();
  const T* keys = kWhole ? row + s.heads * s.head_dim : kv + first * k_stride;
  return {row + head * s.head_dim, keys + shared * s.head_dim,
          static_cast<int>(s.kv_heads * s.head_dim + shared * (s.values() - s.head_dim)),
          s.columns(), k_stride};
}

// A row's softmax over more keys: what it was over the others counts `before`, the sum over these,
// not divided, counts `now` (Milakov & Gimelshein 2018).
struct Shares {
  float before, now, lse;
};
// `top`, `sum`: of these keys' scores; `lse`: of the others'.
__device__ __forceinline__ Shares join(bool first, float lse, float top, float sum) {
  const float own = top + logf(sum);
  if (first) return {0, 1 / sum, own};
  const float both = fmaxf(lse, own) + log1pf(expf(-fabsf(lse - own)));
  return {expf(lse - both), expf(top - both), both};
}

inline float scale_of(const AttentionShape& s) {
  if (s.form.scale != 0) return static_cast<float>(s.form.scale);
  return 1.0F / sqrtf(static_cast<float>(s.head_dim));
}

// A block per tile of queries or keys; x is the tile, y the head, z the sample.
inline dim3 attention_grid(const AttentionShape& s, std::int64_t heads, std::int64_t rows,
                           std::int64_t rows_per_block) {
  return dim3(blocks(rows, rows_per_block), static_cast<unsigned>(heads),
              static_cast<unsigned>(s.tokens / s.sequence));
}
template <class T>
dim3 query_grid(const T& call, std::int64_t rows_per_block) {
  const AttentionPart& p = call.part;
  return attention_grid(p.shape, p.shape.heads, p.query_end - p.query_begin, rows_per_block);
}
template <class T>
dim3 key_grid(const T& call, std::int64_t rows_per_block) {
  const AttentionPart& p = call.part;
  return attention_grid(p.shape, p.shape.kv_heads * call.splits, p.key_end - p.key_begin,
                        rows_per_block);
}

// fp32 throughout, head_dim and values() <= 256.
template <class T>
int exact_attention(Stream stream, const ForwardCall<T>& call);
template <class T>
int exact_attention_backward(Stream stream, const BackwardCall<T>& call);

// The shares of dK and dV, added up in their order: written to dqkv, or added to dkv. T is a type
// of 16 bits here and below.
template <class T>
int add_shares(Stream stream, const BackwardCall<T>& call);

// On tensor cores: heads of which on_tensor_cores() is true, all arrays aligned to 16 bytes.
template <class T>
int fast_attention(Stream stream, const ForwardCall<T>& call);
template <class T>
int fast_attention_backward(Stream stream, const BackwardCall<T>& call);
// The same by wgmma: on devices of compute capability 9.x alone.
template <class T>
int wgmma_attention(Stream stream, const ForwardCall<T>& call);
template <class T>
int wgmma_attention_backward(Stream stream, const BackwardCall<T>& call);
// What they call for head_dim above 128.
template <class T>
int fast_attention_192(Stream stream, const ForwardCall<T>& call);
template <class T>
int fast_attention_backward_192(Stream stream, const BackwardCall<T>& call);
template <class T>
int wgmma_attention_192(Stream stream, const ForwardCall<T>& call);
template <class T>
int wgmma_attention_backward_192(Stream stream, const BackwardCall<T>& call);

}  // namespace rehearse::exec::cuda
