// SPDX-License-Identifier: Apache-2.0
// Casts, fills, and sums of several ranks' arrays in rank order.
#include <numeric>

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;

template <class From, class To, int V>
__global__ void cast_kernel(std::int64_t count, const From* __restrict__ in, To* __restrict__ out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= count) return;
  float v[V];
  load(in + i, v);
  store(out + i, v);
}

template <class T, int V>
__global__ void cast_columns_kernel(std::int64_t count, std::int64_t cols,
                                    const float* __restrict__ in, T* __restrict__ out,
                                    std::int64_t stride) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= count) return;
  float v[V];
  load(in + i, v);
  store(out + i / cols * stride + i % cols, v);
}

__global__ void to_double_kernel(const float* in, double* out) {
  *out = static_cast<double>(*in);
}

template <int V>
__global__ void fill_kernel(std::int64_t count, float value, float* out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= count) return;
  float v[V];
#pragma unroll
  for (int k = 0; k < V; ++k) v[k] = value;
  store(out + i, v);
}

__global__ void noise_kernel(std::int64_t words, std::uint32_t* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= words) return;
  // Murmur3's last mixing: neighbours get unlike bits.
  auto x = static_cast<std::uint32_t>(i) + 0x9E3779B9U;
  x = (x ^ x >> 16) * 0x85EBCA6BU;
  x = (x ^ x >> 13) * 0xC2B2AE35U;
  x ^= x >> 16;
  out[i] = (x & 0x837F837FU) | 0x3C003C00U;
}

constexpr int kManyThreads = 1024;

template <class T>
__global__ void difference_kernel(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                  const T* __restrict__ a, const T* __restrict__ b, float* out) {
  float difference = 0, value = 0;
  for (std::int64_t row = threadIdx.x / kWarp; row < rows; row += kManyThreads / kWarp) {
    for (std::int64_t i = row * stride + threadIdx.x % kWarp; i < row * stride + cols; i += kWarp) {
      const float x = widen(a[i]), y = widen(b[i]);
      const bool numbers = x == x && y == y, neither = x != x && y != y;
      difference = fmaxf(difference, x == y || neither ? 0 : numbers ? fabsf(x - y) : INFINITY);
      value = fmaxf(value, fabsf(x));
    }
  }
  __shared__ float room[2][kWarp];
  difference = over_block<Larger>(difference, room[0]);
  value = over_block<Larger>(value, room[1]);
  if (threadIdx.x == 0) {
    out[0] = difference;
    out[1] = value;
  }
}

template <class T>
struct Members {
  const T* in[kMaxMembers];
  T* out[kMaxMembers];
  int num_in, num_out;
};

// A thread reads its elements of all members before it writes any: out may be in.
template <class T, int V, class Join>
__global__ void reduce_kernel(std::int64_t count, Members<T> members) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= count) return;
  float sum[V], v[V];
  load(members.in[0] + i, sum);
  for (int k = 1; k < members.num_in; ++k) {
    load(members.in[k] + i, v);
#pragma unroll
    for (int j = 0; j < V; ++j) sum[j] = Join{}(sum[j], v[j]);
  }
  for (int k = 0; k < members.num_out; ++k) store(members.out[k] + i, sum);
}

__global__ void reduce_doubles_kernel(std::int64_t count, Members<double> members) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  double sum = members.in[0][i];
  for (int k = 1; k < members.num_in; ++k) sum += members.in[k][i];
  for (int k = 0; k < members.num_out; ++k) members.out[k][i] = sum;
}

template <class T, class In, class Out>
bool gather_members(std::span<const In> in, std::span<const Out> out, Members<T>* members) {
  if (in.empty() || in.size() > kMaxMembers || out.size() > kMaxMembers) return false;
  for (std::size_t k = 0; k < in.size(); ++k) members->in[k] = static_cast<const T*>(in[k]);
  for (std::size_t k = 0; k < out.size(); ++k) members->out[k] = static_cast<T*>(out[k]);
  members->num_in = static_cast<int>(in.size());
  members->num_out = static_cast<int>(out.size());
  return true;
}

}  // namespace

int to_double(Stream stream, const float* in, double* out) {
  return launch(to_double_kernel, dim3(1), 1, 0, stream, in, out);
}

int cast(Stream stream, Type from, Type to, std::int64_t count, const void* in, void* out) {
  return with_type(from, [&](auto zero) {
    using From = decltype(zero);
    return with_type(to, [&](auto other) {
      using To = decltype(other);
      if constexpr (sizeof(From) + sizeof(To) == 4 && !std::is_same_v<From, To>) {
        return kInvalidValue;  // nobody asks for fp16 of bf16
      } else {
        constexpr int kWide = sizeof(From) + sizeof(To) == 8 ? 4 : 8;
        const auto go = [&](auto width) {
          constexpr int V = decltype(width)::value;
          return launch(cast_kernel<From, To, V>, dim3(blocks(count, kThreads * V)), kThreads, 0,
                        stream, count, static_cast<const From*>(in), static_cast<To*>(out));
        };
        if (vectorises<Bf16>(count, {in, out})) return go(std::integral_constant<int, kWide>{});
        return go(std::integral_constant<int, 1>{});
      }
    });
  });
}

int cast_columns(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const float* from,
                 void* to, std::int64_t to_stride) {
  return with_width(type, std::gcd(cols, to_stride), {from, to}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(cast_columns_kernel<T, V>, dim3(blocks(rows * cols, kThreads * V)), kThreads, 0,
                  stream, rows * cols, cols, from, static_cast<T*>(to), to_stride);
  });
}

int largest_difference(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride, const void* a, const void* b, float* out) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return launch(difference_kernel<T>, dim3(1), kManyThreads, 0, stream, rows, cols, stride,
                  static_cast<const T*>(a), static_cast<const T*>(b), out);
  });
}

int fill(Stream stream, std::int64_t count, float value, float* out) {
  return with_width(Type::Float32, count, {out}, [&](auto, auto width) {
    constexpr int V = decltype(width)::value;
    return launch(fill_kernel<V>, dim3(blocks(count, kThreads * V)), kThreads, 0, stream, count,
                  value, out);
  });
}

int noise(Stream stream, std::int64_t words, std::uint32_t* out) {
  return launch(noise_kernel, dim3(blocks(words, kThreads)), kThreads, 0, stream, words, out);
}

int reduce_arrays(Stream stream, Type type, Reduction reduction, std::int64_t count,
                  std::span<const void* const> in, std::span<void* const> out) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    Members<T> members{};
    if (!gather_members(in, out, &members)) return kInvalidValue;
    bool aligned = vectorises<T>(count, {});
    for (const void* array : in) aligned = aligned && vectorises<T>(0, {array});
    for (const void* array : out) aligned = aligned && vectorises<T>(0, {array});
    const auto go = [&](auto width, auto join) {
      constexpr int V = decltype(width)::value;
      return launch(reduce_kernel<T, V, decltype(join)>, dim3(blocks(count, kThreads * V)),
                    kThreads, 0, stream, count, members);
    };
    const auto with_join = [&](auto width) {
      return reduction == Reduction::Sum ? go(width, Add{}) : go(width, Larger{});
    };
    if (aligned) return with_join(std::integral_constant<int, kVector<T>>{});
    return with_join(std::integral_constant<int, 1>{});
  });
}

int reduce_doubles(Stream stream, std::int64_t count, std::span<const double* const> in,
                   std::span<double* const> out) {
  Members<double> members{};
  if (!gather_members(in, out, &members)) return kInvalidValue;
  return launch(reduce_doubles_kernel, dim3(blocks(count, kThreads)), kThreads, 0, stream, count,
                members);
}

}  // namespace rehearse::exec::cuda
