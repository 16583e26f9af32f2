// Chooses the attention kernels, and computes delta = rowsum(dO * O), which both backwards read.
#include "exec/cuda/kernels/attention.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps of a block; one per token and head

template <class T, int V>
__global__ void delta_kernel(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim,
                             const T* __restrict__ d_o, const T* __restrict__ o,
                             float* __restrict__ delta) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= tokens * heads) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
  for (std::int64_t c = lane * V; c < head_dim; c += kWarp * V) {
    float a[V], b[V];
    load(d_o + row * head_dim + c, a);
    load(o + row * head_dim + c, b);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += a[i] * b[i];
  }
  sum = over_warp<Add>(sum);
  if (lane == 0) delta[row % heads * tokens + row / heads] = sum;
}

bool possible(const AttentionShape& s) {
  return s.sequence > 0 && s.tokens % s.sequence == 0 && s.kv_heads > 0 &&
         s.heads % s.kv_heads == 0 && s.head_dim > 0 && s.head_dim <= 256 && s.heads <= 65535 &&
         s.tokens / s.sequence <= 65535 && s.sequence <= INT32_MAX / 2;
}

bool fast(Type type, const AttentionShape& s, std::initializer_list<const void*> arrays) {
  return type == Type::BFloat16 && s.head_dim <= 128 && vectorises<Bf16>(s.head_dim, arrays);
}

}  // namespace

int attention(Stream stream, Type type, const AttentionShape& s, const void* qkv, void* o,
              float* lse) {
  if (!possible(s)) return kInvalidValue;
  if (fast(type, s, {qkv, o})) {
    return fast_attention(stream, s, static_cast<const Bf16*>(qkv), static_cast<Bf16*>(o), lse);
  }
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return exact_attention(stream, s, static_cast<const T*>(qkv), static_cast<T*>(o), lse);
  });
}

int attention_backward(Stream stream, Type type, const AttentionShape& s, const void* d_o,
                       const void* qkv, const void* o, const float* lse, void* dqkv, float* delta) {
  if (!possible(s)) return kInvalidValue;
  const int status = with_width(type, s.head_dim, {d_o, o}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(delta_kernel<T, decltype(width)::value>, dim3(blocks(s.tokens * s.heads, kRows)),
                  kRows * kWarp, 0, stream, s.tokens, s.heads, s.head_dim,
                  static_cast<const T*>(d_o), static_cast<const T*>(o), delta);
  });
  if (status != 0) return status;
  if (fast(type, s, {d_o, qkv, dqkv})) {
    return fast_attention_backward(stream, s, static_cast<const Bf16*>(d_o),
                                   static_cast<const Bf16*>(qkv), lse, delta,
                                   static_cast<Bf16*>(dqkv));
  }
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return exact_attention_backward(stream, s, static_cast<const T*>(d_o),
                                    static_cast<const T*>(qkv), lse, delta, static_cast<T*>(dqkv));
  });
}

}  // namespace rehearse::exec::cuda
