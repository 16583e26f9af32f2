// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021), in place: one block per token. Angles in fp64 as on the CPU,
// once per token, shared by its heads.
#include <algorithm>
#include <cmath>

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 128;

constexpr int kMaxPairs = 256;  // of a head; they travel with the launch

struct Rotary {
  double frequency[kMaxPairs];
  double factor;
  int pairs;
};

// Pairs element i of a head with i + pairs, as Llama does, or 2 i with 2 i + 1, as GPT-J does.
template <class T, int V, bool kInterleaved>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(std::int64_t first_token, std::int64_t sequence, int heads, int head_dim,
                std::int64_t columns, Rotary rotary, bool inverse, T* x) {
  const int pairs = rotary.pairs;
  auto* cosine = reinterpret_cast<float*>(dynamic_shared());  // (pairs), then sines (pairs)
  float* sine = cosine + pairs;
  const auto position = static_cast<double>((first_token + blockIdx.x) % sequence);
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    const double angle = position * rotary.frequency[i];
    double s, c;
    sincos(angle, &s, &c);
    cosine[i] = static_cast<float>(rotary.factor * c);
    sine[i] = static_cast<float>(rotary.factor * (inverse ? -s : s));
  }
  __syncthreads();
  T* row = x + static_cast<std::int64_t>(blockIdx.x) * columns;
  const int per_head = pairs / V;
  for (int k = static_cast<int>(threadIdx.x); k < heads * per_head; k += kThreads) {
    const int i = k % per_head * V;
    T* head = row + k / per_head * head_dim;
    T* at = head + (kInterleaved ? 2 * i : i);
    T* beside = at + (kInterleaved ? V : pairs);
    float a[V], b[V];
    load(at, a);
    load(beside, b);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      // Interleaved: the V pairs are a's elements, then b's
      float& first = kInterleaved ? (2 * j < V ? a[2 * j % V] : b[2 * j % V]) : a[j];
      float& second =
          kInterleaved ? (2 * j + 1 < V ? a[(2 * j + 1) % V] : b[(2 * j + 1) % V]) : b[j];
      const float p = first, q = second, c = cosine[i + j], s = sine[i + j];
      first = p * c - q * s;
      second = q * c + p * s;
    }
    store(at, a);
    store(beside, b);
  }
}

// A block per token: all its queries by one factor.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    temper_kernel(std::int64_t first, std::int64_t sequence, Temperature temperature,
                  std::int64_t queries, std::int64_t columns, T* __restrict__ qkv) {
  const auto position = static_cast<double>((first + blockIdx.x) % sequence);
  const auto by =
      static_cast<float>(1 + temperature.scale * log1p(floor((position + 1) / temperature.floor)));
  T* row = qkv + blockIdx.x * columns;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < queries;
       c += kThreads * V) {
    float v[V];
    load(row + c, v);
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] *= by;
    store(row + c, v);
  }
}

}  // namespace

int temper_queries(Stream stream, Type type, const AttentionShape& s,
                   const Temperature& temperature, void* qkv) {
  const std::int64_t queries = s.heads * s.head_dim;
  const std::int64_t length = s.columns() % 8 == 0 ? queries : 1;  // rows begin at 16 bytes
  return with_width(type, length, {qkv}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(temper_kernel<T, V>, dim3(blocks(s.tokens, 1)), kThreads, 0, stream, s.first,
                  s.sequence, temperature, queries, s.columns(), static_cast<T*>(qkv));
  });
}

int rope(Stream stream, Type type, const AttentionShape& s, const RotaryShape& shape, bool inverse,
         void* qkv) {
  const std::int64_t pairs = shape.rotary_dim / 2;
  if (shape.rotary_dim % 2 != 0 || shape.rotary_dim > s.head_dim || pairs > kMaxPairs)
    return kInvalidValue;
  if (pairs == 0) return 0;
  Rotary rotary{};
  std::copy_n(shape.inverse_frequency, pairs, rotary.frequency);
  rotary.factor = shape.attention_factor;
  rotary.pairs = static_cast<int>(pairs);
  // Rows, heads and their halves must all begin at 16 bytes.
  const std::int64_t length = s.columns() % 8 == 0 && s.head_dim % 8 == 0 ? pairs : 1;
  return with_width(type, length, {qkv}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(shape.interleaved ? rope_kernel<T, V, true> : rope_kernel<T, V, false>,
                  dim3(blocks(s.tokens, 1)), kThreads,
                  static_cast<std::size_t>(2 * pairs) * sizeof(float), stream, s.first, s.sequence,
                  static_cast<int>(s.heads + s.kv_heads), static_cast<int>(s.head_dim), s.columns(),
                  rotary, inverse, static_cast<T*>(qkv));
  });
}

}  // namespace rehearse::exec::cuda
