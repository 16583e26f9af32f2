// SPDX-License-Identifier: Apache-2.0
// What every kernel file shares: the 16-bit types, 16-byte access, reductions of a warp and a block
// in a fixed order, and the launch. No cub, no cooperative groups: their headers double the build
// time.
//
// Also compiled by g++ against tests/cuda/emulation.h, which plays threads of a block as fibers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#ifndef REHEARSE_CUDA_EMULATION
#include <cuda_runtime.h>
#endif

#include "exec/cuda/calls/kernels.h"

namespace rehearse::exec::cuda {

constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue
constexpr int kWarp = 32;

// --- numbers -----------------------------------------------------------------
struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {  // binary16
  std::uint16_t bits;
};
template <class T>
constexpr bool kSixteenBits = std::is_same_v<T, Bf16> || std::is_same_v<T, Fp16>;

__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ float widen(Bf16 x) {
  return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float widen(Fp16 x) {
#ifndef REHEARSE_CUDA_EMULATION
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return emulation::from_fp16(x.bits);
#endif
}

// Two floats rounded to nearest even, `low` in the low half. In fp16 65,520 and more are infinite.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
#ifndef REHEARSE_CUDA_EMULATION
  std::uint32_t both;
  if constexpr (std::is_same_v<T, Fp16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  const auto half = std::is_same_v<T, Fp16> ? emulation::to_fp16 : emulation::to_bf16;
  return half(low) | static_cast<std::uint32_t>(half(high)) << 16;
#endif
}

template <class T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (kSixteenBits<T>) {
    return {static_cast<std::uint16_t>(pack<T>(x, 0.0F))};
  } else {
    return x;
  }
}

// Functions that are exact enough for T: libdevice's in fp32, the special function unit's in 16
// bits; its tanh is off by up to 2^-11, a last place of fp16.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (kSixteenBits<T>) {
    return __expf(x);
  } else {
    return expf(x);
  }
}
template <class T>
__device__ __forceinline__ float hyperbolic_tangent(float x) {
#ifndef REHEARSE_CUDA_EMULATION
  if constexpr (std::is_same_v<T, Bf16>) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
#endif
  return tanhf(x);
}

// --- access: V consecutive elements, V == 1 or 16 bytes' worth ---------------
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <class T>
__device__ __forceinline__ void load(const T* from, float (&to)[1]) {
  to[0] = widen(*from);
}
__device__ __forceinline__ void load(const float* from, float (&to)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ __forceinline__ void load(const float* from, float (&to)[8]) {  // beside 16 bits
  const float4 v = reinterpret_cast<const float4*>(from)[0];
  const float4 w = reinterpret_cast<const float4*>(from)[1];
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  to[4] = w.x, to[5] = w.y, to[6] = w.z, to[7] = w.w;
}
template <class T>
__device__ __forceinline__ void unpack(std::uint32_t both, float& low, float& high) {
  if constexpr (std::is_same_v<T, Fp16>) {
    low = widen(Fp16{static_cast<std::uint16_t>(both)});
    high = widen(Fp16{static_cast<std::uint16_t>(both >> 16)});
  } else {
    low = __uint_as_float(both << 16);
    high = __uint_as_float(both & 0xFFFF0000U);
  }
}

// The same before it is widened: half the registers while it is waited for.
template <class T, int V>
using Raw = std::conditional_t<V == 1, T, uint4>;
template <class T, int V>
__device__ __forceinline__ Raw<T, V> load_raw(const T* from) {
  return *reinterpret_cast<const Raw<T, V>*>(from);
}
template <class T>
__device__ __forceinline__ void widen_all(const T& raw, float (&to)[1]) {
  to[0] = widen(raw);
}
template <class T>
__device__ __forceinline__ void widen_all(const uint4& raw, float (&to)[4]) {
  to[0] = __uint_as_float(raw.x), to[1] = __uint_as_float(raw.y);
  to[2] = __uint_as_float(raw.z), to[3] = __uint_as_float(raw.w);
}
template <class T>
__device__ __forceinline__ void widen_all(const uint4& raw, float (&to)[8]) {
  unpack<T>(raw.x, to[0], to[1]);
  unpack<T>(raw.y, to[2], to[3]);
  unpack<T>(raw.z, to[4], to[5]);
  unpack<T>(raw.w, to[6], to[7]);
}
template <class T>
requires kSixteenBits<T> __device__ __forceinline__ void load(const T* from, float (&to)[8]) {
  widen_all<T>(*reinterpret_cast<const uint4*>(from), to);
}

template <class T>
__device__ __forceinline__ void store(T* to, const float (&from)[1]) {
  *to = narrow<T>(from[0]);
}
__device__ __forceinline__ void store(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
__device__ __forceinline__ void store(float* to, const float (&from)[8]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}
template <class T>
requires kSixteenBits<T> __device__ __forceinline__ void store(T* to, const float (&from)[8]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pack<T>(from[0], from[1]), pack<T>(from[2], from[3]),
                                             pack<T>(from[4], from[5]), pack<T>(from[6], from[7]));
}

// --- reductions: the same tree for every thread, so all of them hold the result ---
struct Add {
  template <class N>
  __device__ N operator()(N a, N b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Join, class N>
__device__ __forceinline__ N over_warp(N value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = Join{}(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}

// REQUIRES: a block of whole warps, all threads call. `room`(32) is shared memory of this call's
// own, or a __syncthreads lies between two uses of it.
template <class Join, class N>
__device__ __forceinline__ N over_block(N value, N* room) {
  const int warps = static_cast<int>(blockDim.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  value = over_warp<Join>(value);
  if (lane == 0) room[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = room[0];
  for (int k = 1; k < warps; ++k) value = Join{}(value, room[k]);
  return value;
}

// --- launch ------------------------------------------------------------------
constexpr std::size_t kSharedWithoutAsking = 48 * 1024;  // [B]; more is asked for per kernel

#ifndef REHEARSE_CUDA_EMULATION
template <class... P, class... A>
int launch(void (*kernel)(P...), dim3 grid, int threads, std::size_t shared, Stream stream,
           A... a) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
  if (shared > kSharedWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return static_cast<int>(error);
  }
  kernel<<<grid, static_cast<unsigned>(threads), shared, stream>>>(static_cast<P>(a)...);
  return static_cast<int>(cudaGetLastError());
}
// Aligned to 1,024 bytes, as swizzled tiles need it. The compiler believes the attribute; where the
// block's memory really begins is known on the device alone, so a block that it does not hold for
// ends its grid; a kernel without a register to spare leaves that to others, whose memory begins
// at the same address.
template <bool kChecked = true>
__device__ __forceinline__ std::byte* dynamic_shared() {
  extern __shared__ __align__(1024) std::byte dynamic_shared_bytes[];
  if constexpr (!kChecked) return dynamic_shared_bytes;
  asm volatile(
      "{\n"
      ".reg .pred odd;\n"
      ".reg .b32 low;\n"
      "and.b32 low, %0, 1023;\n"
      "setp.ne.u32 odd, low, 0;\n"
      "@odd trap;\n"
      "}\n" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(dynamic_shared_bytes))));
  return dynamic_shared_bytes;
}
// Of the current device: as many blocks at least keep it busy.
inline int processors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}
#else
template <class... P, class... A>
int launch(void (*kernel)(P...), dim3 grid, int threads, std::size_t shared, Stream stream,
           A... a) {
  emulation::on_stream(stream, [=] {
    emulation::run(grid, threads, shared, [&] { kernel(static_cast<P>(a)...); });
  });
  return 0;
}
template <bool kChecked = true>
std::byte* dynamic_shared() {
  return emulation::dynamic_shared();
}
inline int processors() {
  return emulation::processors();
}
#endif

inline unsigned blocks(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// May rows of `length` elements of T be read 16 bytes at a time in all these arrays?
template <class T>
bool vectorises(std::int64_t length, std::initializer_list<const void*> arrays) {
  bool all = length % kVector<T> == 0;
  for (const void* array : arrays) all = all && reinterpret_cast<std::uintptr_t>(array) % 16 == 0;
  return all;
}

// Calls f(T{}) with the element type.
template <class F>
int with_type(Type type, F f) {
  return type == Type::Float32 ? f(float{}) : type == Type::BFloat16 ? f(Bf16{}) : f(Fp16{});
}
// Calls f(T{}, integral_constant<V>) with the width that `length` and the arrays allow.
template <class F>
int with_width(Type type, std::int64_t length, std::initializer_list<const void*> arrays, F f) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if (vectorises<T>(length, arrays)) return f(zero, std::integral_constant<int, kVector<T>>{});
    return f(zero, std::integral_constant<int, 1>{});
  });
}

}  // namespace rehearse::exec::cuda
