// SPDX-License-Identifier: Apache-2.0
// Latent attention: between its products and the qkv that attention reads
// (exec/cpu/kernels/attention/latent.inc). Each result is written by one thread; the heads' rotary
// gradients are summed in their order.
#include "exec/cuda/kernels/pointwise.cuh"

namespace rehearse::exec::cuda {
namespace {

template <class T, int V>
__device__ __forceinline__ void copy(const T* from, T* to) {
  float v[V];
  load(from, v);
  store(to, v);
}

// Column c of a row of qkv.
template <class T, int V>
struct JoinHeads {
  LatentShape s;
  const T *q, *kv, *rotary_key;
  T* qkv;
  __device__ const T* source(std::int64_t token, std::int64_t c) const {
    const std::int64_t queries = s.heads * s.key(), both = s.plain + s.values;
    if (c < queries) return q + token * queries + c;
    const T* row = kv + token * s.heads * both;
    if (c -= queries; c >= queries) {
      c -= queries;
      return row + c / s.values * both + s.plain + c % s.values;
    }
    const std::int64_t i = c % s.key();
    return i < s.plain ? row + c / s.key() * both + i : rotary_key + token * s.rotary + i - s.plain;
  }
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t columns = s.heads * (2 * s.key() + s.values);
    copy<T, V>(source(i / columns, i % columns), qkv + i);
  }
};

// A token has first the columns of dq, then those of dkv, then those of the rotary key.
template <class T, int V>
struct SplitHeads {
  LatentShape s;
  const T* dqkv;
  T *dq, *dkv, *d_rotary_key;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t queries = s.heads * s.key(), both = s.plain + s.values;
    const std::int64_t columns = queries + s.heads * both + s.rotary, token = i / columns;
    const T* row = dqkv + token * s.heads * (2 * s.key() + s.values);
    const T *keys = row + queries, *values = keys + queries;
    std::int64_t c = i % columns;
    if (c < queries) return copy<T, V>(row + c, dq + token * queries + c);
    if (c -= queries; c < s.heads * both) {
      const std::int64_t head = c / both, at = c % both;
      return copy<T, V>(
          at < s.plain ? keys + head * s.key() + at : values + head * s.values + at - s.plain,
          dkv + token * s.heads * both + c);
    }
    c -= s.heads * both;
    float sum[V] = {};
    for (std::int64_t head = 0; head < s.heads; ++head) {
      float v[V];
      load(keys + head * s.key() + s.plain + c, v);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += v[k];
    }
    store(d_rotary_key + token * s.rotary + c, sum);
  }
};

// Calls f(T{}, width): 16 bytes where all stretches of a head are multiples of them.
template <class F>
int with_heads(Type type, const LatentShape& s, std::initializer_list<const void*> arrays, F f) {
  const bool whole = s.plain % 8 == 0 && s.rotary % 8 == 0 && s.values % 8 == 0;
  return with_width(type, whole ? 8 : 1, arrays, f);
}

}  // namespace

int join_heads(Stream stream, Type type, const LatentShape& s, const void* q, const void* kv,
               const void* rotary_key, void* qkv) {
  return with_heads(type, s, {q, kv, rotary_key, qkv}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, s.tokens * s.heads * (2 * s.key() + s.values),
                       JoinHeads<T, V>{s, static_cast<const T*>(q), static_cast<const T*>(kv),
                                       static_cast<const T*>(rotary_key), static_cast<T*>(qkv)});
  });
}

int split_heads(Stream stream, Type type, const LatentShape& s, const void* dqkv, void* dq,
                void* dkv, void* d_rotary_key) {
  return with_heads(type, s, {dqkv, dq, dkv, d_rotary_key}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, s.tokens * (s.heads * (s.key() + s.plain + s.values) + s.rotary),
                       SplitHeads<T, V>{s, static_cast<const T*>(dqkv), static_cast<T*>(dq),
                                        static_cast<T*>(dkv), static_cast<T*>(d_rotary_key)});
  });
}

}  // namespace rehearse::exec::cuda
