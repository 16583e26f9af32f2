// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021), in place: one block per token. Angles in fp64 as on the CPU,
// once per token, shared by its heads.
#include <cmath>

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 128;

// Pairs element i of a head with i + half, as Llama does.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(std::int64_t first_token, std::int64_t sequence, int heads, int head_dim,
                std::int64_t columns, double log2_theta, bool inverse, T* x) {
  const int half = head_dim / 2;
  auto* cosine = reinterpret_cast<float*>(dynamic_shared());  // (half), then sines (half)
  float* sine = cosine + half;
  const auto position = static_cast<double>((first_token + blockIdx.x) % sequence);
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const double angle = position * exp2(-2.0 * i / head_dim * log2_theta);
    double s, c;
    sincos(angle, &s, &c);
    cosine[i] = static_cast<float>(c);
    sine[i] = static_cast<float>(inverse ? -s : s);
  }
  __syncthreads();
  T* row = x + static_cast<std::int64_t>(blockIdx.x) * columns;
  const int per_head = half / V;
  for (int k = static_cast<int>(threadIdx.x); k < heads * per_head; k += kThreads) {
    const int i = k % per_head * V;
    T* at = row + k / per_head * head_dim + i;
    float a[V], b[V];
    load(at, a);
    load(at + half, b);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float first = a[j], second = b[j], c = cosine[i + j], s = sine[i + j];
      a[j] = first * c - second * s;
      b[j] = second * c + first * s;
    }
    store(at, a);
    store(at + half, b);
  }
}

}  // namespace

int rope(Stream stream, Type type, const AttentionShape& s, double theta, bool inverse, void* qkv) {
  if (s.head_dim % 2 != 0 || s.head_dim > 4096) return kInvalidValue;
  // Rows and halves of heads must both begin at 16 bytes.
  const std::int64_t length = s.columns() % 8 == 0 ? s.head_dim / 2 : 1;
  return with_width(type, length, {qkv}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(rope_kernel<T, decltype(width)::value>, dim3(blocks(s.tokens, 1)), kThreads,
                  static_cast<std::size_t>(s.head_dim) * sizeof(float), stream, s.first, s.sequence,
                  static_cast<int>(s.heads + s.kv_heads), static_cast<int>(s.head_dim), s.columns(),
                  log2(theta), inverse, static_cast<T*>(qkv));
  });
}

}  // namespace rehearse::exec::cuda
