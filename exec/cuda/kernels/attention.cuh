// What the attention kernels share: where a head's rows lie, and the two families' launch
// functions.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

constexpr float kLog2E = 1.4426950408889634F;

// qkv(tokens, columns): the q heads, then the k heads, then the v heads of a token side by side.
template <class T>
struct Head {
  const T *q, *k, *v;   // first row of the sample
  std::int64_t stride;  // elements from token to token
};
template <class T>
__device__ __forceinline__ Head<T> head_of(const AttentionShape& s, const T* qkv,
                                           std::int64_t sample, std::int64_t head) {
  const std::int64_t shared = head / (s.heads / s.kv_heads);
  const T* row = qkv + sample * s.sequence * s.columns();
  return {row + head * s.head_dim, row + (s.heads + shared) * s.head_dim,
          row + (s.heads + s.kv_heads + shared) * s.head_dim, s.columns()};
}

// A block per tile of queries or keys; x is the tile, y the head, z the sample.
inline dim3 attention_grid(const AttentionShape& s, std::int64_t heads,
                           std::int64_t rows_per_block) {
  return dim3(blocks(s.sequence, rows_per_block), static_cast<unsigned>(heads),
              static_cast<unsigned>(s.tokens / s.sequence));
}

// fp32 throughout, head_dim <= 256.
template <class T>
int exact_attention(Stream stream, const AttentionShape& s, const T* qkv, T* o, float* lse);
template <class T>
int exact_attention_backward(Stream stream, const AttentionShape& s, const T* d_o, const T* qkv,
                             const float* lse, const float* delta, T* dqkv);

// bf16 on tensor cores: head_dim <= 128, a multiple of 8, all arrays aligned to 16 bytes.
int fast_attention(Stream stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse);
int fast_attention_backward(Stream stream, const AttentionShape& s, const Bf16* d_o,
                            const Bf16* qkv, const float* lse, const float* delta, Bf16* dqkv);

}  // namespace rehearse::exec::cuda
