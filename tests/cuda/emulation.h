// SPDX-License-Identifier: Apache-2.0
// An emulation of the part of CUDA that exec/cuda/kernels uses, so that the kernels' own source
// runs on a CPU, in every test run. It finds wrong indices, wrong fragment layouts, missing
// barriers and reads before a copy has arrived. It says nothing about speed, or about what a
// compiler for the GPU makes of the source.
//
// Included before a .cu file (g++ -x c++ -include). Threads of a block are fibers of one thread,
// run until their next barrier, in an order that a test chooses; blocks run one after another, in
// that order too. Dynamic shared memory holds NaNs before every block. Divergent barriers abort.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/cuda/on_stream.h"

#define REHEARSE_CUDA_EMULATION 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct uint4 {
  std::uint32_t x, y, z, w;
};
struct uint2 {
  std::uint32_t x, y;
};
struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
struct float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(std::uint32_t x, std::uint32_t y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// The place of the fiber that runs.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

enum class Order { Forward, Backward, Shuffled };
void set_order(Order order);

// What a launch asks for is checked against the limits of sm_80 (sm_90's are wider).
struct Launch {
  dim3 grid;
  int threads = 0;
  std::size_t shared = 0;  // [B]
};
// While on, launches are checked and noted, but do not run: for shapes that are too large to
// emulate.
void only_note(bool on);
std::vector<Launch> take_launches();
void run(dim3 grid, int threads, std::size_t shared, const std::function<void()>& thread);

// Of the device; few, unless a test says otherwise, so that small shapes fill it.
int processors();
void set_processors(int count);

std::byte* dynamic_shared();
void block_barrier();
// All lanes of the warp bring `bytes` (at most 64); slot k of the result is lane k's. `name` must
// be the same for all lanes. `combine`, if any, changes the 32 slots once, when all have come.
struct Slot {
  alignas(16) std::byte at[64];
};
const Slot* exchange(const char* name, const void* mine, std::size_t bytes,
                     void (*combine)(Slot*) = nullptr);

template <class N>
N shuffle(const char* name, N value, int from) {
  const Slot* all = exchange(name, &value, sizeof value);
  N other;
  std::memcpy(&other, all[from].at, sizeof other);
  return other;
}

std::uint16_t to_bf16(float value);  // to nearest even
std::uint16_t to_fp16(float value);  // likewise
float from_fp16(std::uint16_t half);
// One half of a word of two bf16 or fp16: 0 is the low one.
float widened(std::uint32_t word, int half, bool fp16);
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, bool fp16);

// Shared addresses are offsets into the dynamic shared memory.
std::uint32_t shared_address(const void* pointer);
void store_word(std::uint32_t to, std::uint32_t word);
uint4 load_words(std::uint32_t from);
void load_matrices(std::uint32_t (&out)[4], std::uint32_t row, bool transposed);
// A copy lands when its group is waited for; until then its target holds NaNs.
void start_copy(std::uint32_t to, const void* from, std::uint32_t bytes, bool valid);
void end_group();
void wait_groups(int pending);

// --- products of a warpgroup (emulation_wgmma.cc) ----------------------------
// c(64, n) = a(64, 16) b(16, n), plus what c holds where `add`.
struct Product {
  bool fp16 = false;  // else bf16
  std::uint32_t a_registers[4] = {};
  bool a_in_registers = false;  // else a_matrix
  std::uint64_t a_matrix = 0, b_matrix = 0;
  bool b_transposed = false;  // the instruction's imm-trans-b
  bool add = false;
};
// The result lands when its group is waited for; until then c holds NaNs. Both operands must still
// lie in shared memory by then. c: the n / 2 registers of the thread.
void wgmma(float* c, int n, const Product& product);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
// Of what the thread stored, or copied and waited for; else no product may read it.
void fence_proxy();

}  // namespace emulation

inline void __syncthreads() {
  emulation::block_barrier();
}
inline void __syncwarp() {
  emulation::exchange("syncwarp", nullptr, 0);
}
template <class N>
N __shfl_xor_sync(unsigned, N value, int mask) {
  return emulation::shuffle("shfl.xor", value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <class N>
N __shfl_sync(unsigned, N value, int lane) {
  return emulation::shuffle("shfl", value, lane);
}
inline std::uint32_t __ballot_sync(unsigned, bool set) {
  const emulation::Slot* all = emulation::exchange("ballot", &set, sizeof set);
  std::uint32_t lanes = 0;
  for (unsigned lane = 0; lane < 32 && lane < blockDim.x; ++lane) {
    bool other;
    std::memcpy(&other, all[lane].at, sizeof other);
    lanes |= static_cast<std::uint32_t>(other) << lane;
  }
  return lanes;
}
inline int __popc(std::uint32_t x) {
  return __builtin_popcount(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline std::uint32_t __float_as_uint(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __uint_as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
