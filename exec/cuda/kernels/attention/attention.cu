// SPDX-License-Identifier: Apache-2.0
// Chooses the attention kernels; computes delta = rowsum(dO * O), which both backwards read, and
// the gradients of sinks, which follow from it.
#include "exec/cuda/kernels/attention/attention.cuh"
#include "exec/cuda/kernels/pointwise.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kDeltaThreads = 128;

// kLanes threads for a token's head, which lie side by side in a warp.
template <class T, int V, int kLanes>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(std::int64_t tokens, std::int64_t heads, std::int64_t values,
                 const T* __restrict__ d_o, const T* __restrict__ o, float* __restrict__ delta) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kDeltaThreads / kLanes) + threadIdx.x / kLanes;
  const bool here = row < tokens * heads;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  for (std::int64_t c = lane * V; here && c < values; c += kLanes * V) {
    float a[V], b[V];
    load(d_o + row * values + c, a);
    load(o + row * values + c, b);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += a[i] * b[i];
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  }
  if (here && lane == 0) delta[row % heads * tokens + row / heads] = sum;
}

constexpr int kSinkThreads = 256;

// A block per head: - e^(sink - lse) delta, summed over the queries.
template <class T>
__global__ void __launch_bounds__(kSinkThreads)
    sinks_kernel(std::int64_t tokens, const T* __restrict__ sinks, const float* __restrict__ lse,
                 const float* __restrict__ delta, float* __restrict__ d_sinks) {
  __shared__ double room[kWarp];
  const float sink = widen(sinks[blockIdx.x]);
  const std::int64_t first = blockIdx.x * tokens;
  double sum = 0;
  for (std::int64_t t = threadIdx.x; t < tokens; t += kSinkThreads)
    sum += static_cast<double>(expf(sink - lse[first + t]) * delta[first + t]);
  sum = over_block<Add>(sum, room);
  if (threadIdx.x == 0) d_sinks[blockIdx.x] -= static_cast<float>(sum);
}

// A thread for 8 columns of a key.
template <class T>
struct AddShares {
  BackwardCall<T> call;
  __device__ void operator()(std::int64_t i) const {
    const AttentionPart& p = call.part;
    const AttentionShape& s = p.shape;
    const std::int64_t columns = s.kv_columns(), keys = p.key_end - p.key_begin;
    const std::int64_t row = i / columns, column = i % columns;
    const std::int64_t token = row / keys * s.sequence + p.key_begin + row % keys;
    const std::int64_t at = token * columns + column;
    float sum[8] = {}, v[8];
    for (int split = 0; split < call.splits; ++split) {
      load(call.shares + split * s.tokens * columns + at, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum[k] += v[k];
    }
    if (call.dqkv != nullptr) {
      store(call.dqkv + token * s.columns() + s.heads * s.head_dim + column, sum);
      return;
    }
    load(call.dkv + at, v);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] += v[k];
    store(call.dkv + at, sum);
  }
};

// Few tiles of keys are split, so that there are about four blocks for each processor: two that it
// holds, twice, for the first tiles meet the most queries.
int splits_of(const AttentionPart& p) {
  const AttentionShape& s = p.shape;
  const std::int64_t tiles = (p.key_end - p.key_begin + kKeyRows - 1) / kKeyRows;
  const std::int64_t blocks = tiles * s.kv_heads * (s.tokens / s.sequence);
  const std::int64_t wanted = std::int64_t{4} * processors() / blocks;
  const std::int64_t steps = (p.query_end - p.query_begin + kKeyRows - 1) / kKeyRows *
                             (s.heads / s.kv_heads);  // of a block, at most
  const std::int64_t splits = wanted < steps ? wanted : steps;
  return splits < 1 ? 1 : static_cast<int>(splits);
}

bool possible(const AttentionPart& p) {
  const AttentionShape& s = p.shape;
  return s.sequence > 0 && s.tokens % s.sequence == 0 && s.kv_heads > 0 &&
         s.heads % s.kv_heads == 0 && s.head_dim > 0 && s.head_dim <= kWidestHead &&
         s.values() <= kWidestHead && s.heads <= 65535 && s.tokens / s.sequence <= 65535 &&
         s.sequence <= INT32_MAX / 2 && p.query_begin >= 0 && p.query_begin <= p.query_end &&
         p.query_end <= s.sequence && p.key_begin >= 0 && p.key_begin < p.key_end &&
         p.key_end <= s.sequence && s.form.window <= INT32_MAX / 4 &&
         (!p.causal || (p.query_begin == p.key_begin && p.query_end <= p.key_end));
}

bool fast(Type type, const AttentionPart& p, std::initializer_list<const void*> arrays) {
  return on_tensor_cores(type, p.shape) && p.key_stride % kVector<Bf16> == 0 &&
         vectorises<Bf16>(p.shape.head_dim, arrays);
}

AttentionPart whole(const AttentionShape& s) {
  return {.shape = s,
          .query_end = s.sequence,
          .key_end = s.sequence,
          .key_stride = s.columns(),
          .causal = true,
          .first = true};
}

int deltas(Stream stream, Type type, const AttentionShape& s, const void* d_o, const void* o,
           float* delta) {
  return with_width(type, s.values(), {d_o, o}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const auto by = [&](auto lanes) {
      constexpr int kLanes = decltype(lanes)::value;
      return launch(delta_kernel<T, V, kLanes>,
                    dim3(blocks(s.tokens * s.heads, kDeltaThreads / kLanes)), kDeltaThreads, 0,
                    stream, s.tokens, s.heads, s.values(), static_cast<const T*>(d_o),
                    static_cast<const T*>(o), delta);
    };
    // Heads of 64 and of 128 in 16 bits leave no thread idle.
    if (s.values() <= 8 * V) return by(std::integral_constant<int, 8>{});
    if (s.values() <= 16 * V) return by(std::integral_constant<int, 16>{});
    return by(std::integral_constant<int, kWarp>{});
  });
}

// Calls f(T{}, tensor cores or not).
template <class F>
int with_kernel(Type type, bool fast, F f) {
  if (fast && type == Type::Float16) return f(Fp16{}, std::true_type{});
  if (fast) return f(Bf16{}, std::true_type{});
  return with_type(type, [&](auto zero) { return f(zero, std::false_type{}); });
}

template <class T, class Fast>
int forward(Stream stream, const ForwardCall<T>& call, Fast) {
  if constexpr (Fast::value) {
    return call.engine == AttentionEngine::Wgmma ? wgmma_attention(stream, call)
                                                 : fast_attention(stream, call);
  } else {
    return exact_attention(stream, call);
  }
}
template <class T, class Fast>
int backward(Stream stream, const BackwardCall<T>& call, Fast) {
  if constexpr (Fast::value) {
    return call.engine == AttentionEngine::Wgmma ? wgmma_attention_backward(stream, call)
                                                 : fast_attention_backward(stream, call);
  } else {
    return exact_attention_backward(stream, call);
  }
}

}  // namespace

std::int64_t attention_backward_scratch(Type type, const AttentionShape& s) {
  return attention_part_backward_scratch(type, whole(s));
}
std::int64_t attention_part_backward_scratch(Type type, const AttentionPart& part) {
  const AttentionShape& s = part.shape;
  if (!possible(part) || !on_tensor_cores(type, s)) return 0;
  const int splits = splits_of(part);
  return splits == 1 ? 0 : 4 * splits * s.tokens * s.kv_columns();
}

template <class T>
int add_shares(Stream stream, const BackwardCall<T>& call) {
  const AttentionPart& p = call.part;
  const AttentionShape& s = p.shape;
  const std::int64_t keys = s.tokens / s.sequence * (p.key_end - p.key_begin);
  return for_each<8>(stream, keys * s.kv_columns(), AddShares<T>{call});
}

template int add_shares(Stream, const BackwardCall<Bf16>&);
template int add_shares(Stream, const BackwardCall<Fp16>&);

int attention(Stream stream, Type type, const AttentionShape& s, const void* qkv, void* o,
              float* lse, AttentionEngine engine) {
  const AttentionPart part = whole(s);
  if (!possible(part)) return kInvalidValue;
  return with_kernel(type, fast(type, part, {qkv, o}), [&](auto zero, auto on_tensor_cores) {
    using T = decltype(zero);
    return forward(stream,
                   ForwardCall<T>{.part = part,
                                  .qkv = static_cast<const T*>(qkv),
                                  .kv = static_cast<const T*>(qkv) + s.heads * s.head_dim,
                                  .o = static_cast<T*>(o),
                                  .lse = lse,
                                  .engine = engine},
                   on_tensor_cores);
  });
}

int attention_backward(Stream stream, Type type, const AttentionShape& s, const void* d_o,
                       const void* qkv, const void* o, const float* lse, void* dqkv, float* delta,
                       void* scratch, AttentionEngine engine) {
  const AttentionPart part = whole(s);
  if (!possible(part)) return kInvalidValue;
  if (const int status = deltas(stream, type, s, d_o, o, delta); status != 0) return status;
  return with_kernel(
      type, fast(type, part, {d_o, qkv, dqkv}), [&](auto zero, auto on_tensor_cores) {
        using T = decltype(zero);
        return backward(stream,
                        BackwardCall<T>{.part = part,
                                        .d_o = static_cast<const T*>(d_o),
                                        .qkv = static_cast<const T*>(qkv),
                                        .kv = static_cast<const T*>(qkv) + s.heads * s.head_dim,
                                        .lse = lse,
                                        .delta = delta,
                                        .dqkv = static_cast<T*>(dqkv),
                                        .splits = on_tensor_cores ? splits_of(part) : 1,
                                        .shares = static_cast<float*>(scratch),
                                        .engine = engine},
                        on_tensor_cores);
      });
}

int attention_part(Stream stream, Type type, const AttentionPart& part, const void* qkv,
                   const void* kv, float* sum, float* lse, AttentionEngine engine) {
  if (!possible(part)) return kInvalidValue;
  return with_kernel(type, fast(type, part, {qkv, kv, sum}), [&](auto zero, auto on_tensor_cores) {
    using T = decltype(zero);
    return forward(stream,
                   ForwardCall<T>{.part = part,
                                  .qkv = static_cast<const T*>(qkv),
                                  .kv = static_cast<const T*>(kv),
                                  .sum = sum,
                                  .lse = lse,
                                  .engine = engine},
                   on_tensor_cores);
  });
}

int attention_part_backward(Stream stream, Type type, const AttentionPart& part, const void* d_o,
                            const void* qkv, const void* kv, const void* o, const float* lse,
                            float* dq, float* dkv, float* delta, void* scratch,
                            AttentionEngine engine) {
  if (!possible(part)) return kInvalidValue;
  const AttentionShape& s = part.shape;
  if (part.first) {
    int status = deltas(stream, type, s, d_o, o, delta);
    if (status == 0) status = fill(stream, s.tokens * s.heads * s.head_dim, 0, dq);
    if (status != 0) return status;
  }
  const bool on = fast(type, part, {d_o, qkv, kv, dq, dkv});
  return with_kernel(type, on, [&](auto zero, auto on_tensor_cores) {
    using T = decltype(zero);
    return backward(stream,
                    BackwardCall<T>{.part = part,
                                    .d_o = static_cast<const T*>(d_o),
                                    .qkv = static_cast<const T*>(qkv),
                                    .kv = static_cast<const T*>(kv),
                                    .lse = lse,
                                    .delta = delta,
                                    .dq = dq,
                                    .dkv = dkv,
                                    .splits = on_tensor_cores ? splits_of(part) : 1,
                                    .shares = static_cast<float*>(scratch),
                                    .engine = engine},
                    on_tensor_cores);
  });
}

int sink_gradient(Stream stream, Type type, const AttentionShape& s, const float* lse,
                  const float* delta, float* d_sinks) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return launch(sinks_kernel<T>, dim3(blocks(s.heads, 1)), kSinkThreads, 0, stream, s.tokens,
                  static_cast<const T*>(s.form.sinks), lse, delta, d_sinks);
  });
}

}  // namespace rehearse::exec::cuda
