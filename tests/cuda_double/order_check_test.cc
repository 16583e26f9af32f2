// SPDX-License-Identifier: Apache-2.0
// The double's own memory of what touched what: memory that changes hands has no past, and memory
// that does not keeps it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <tuple>

#include "exec/cuda/calls/gemm.h"
#include "tests/cuda_double/device.h"

namespace rehearse::cuda_double {
namespace {

using Allocate = cudaError_t (*)(void**, std::size_t);

struct Streams {
  cudaStream_t one = nullptr, other = nullptr;
  Streams() {
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    unordered();  // of tests before
  }
  ~Streams() {
    cudaDeviceSynchronize();  // what a test before touched beside its blocks is over
    cudaStreamDestroy(one);
    cudaStreamDestroy(other);
  }
  void write(std::uintptr_t at, std::int64_t bytes) const {
    enqueue(one, Touched("a kernel").writes(reinterpret_cast<void*>(at), bytes), [] {});
  }
  void read(std::uintptr_t at, std::int64_t bytes) const {
    enqueue(other, Touched("a copy").reads(reinterpret_cast<void*>(at), bytes), [] {});
  }
};

class OrderCheck : public testing::TestWithParam<std::pair<Allocate, cudaError_t (*)(void*)>> {};

// Work on one stream touches an array that the double never handed out, and that is freed; then the
// allocator hands out its place, and another stream reads there. Nothing orders the two, and
// nothing needs to. The arrays lie inside the block, begin before it, and have one byte.
TEST_P(OrderCheck, MemoryThatIsHandedOutHasNoPast) {
  const auto& [allocate, give_back] = GetParam();
  const Streams streams;
  for (const auto& [begin, bytes] : {std::pair{64, 128}, std::pair{-64, 128}, std::pair{32, 1}}) {
    SCOPED_TRACE(begin);
    void* place = std::aligned_alloc(256, 256);
    const auto at = reinterpret_cast<std::uintptr_t>(place);
    streams.write(at + static_cast<std::uintptr_t>(begin), bytes);
    hand_out(place);
    void* memory = nullptr;
    ASSERT_EQ(allocate(&memory, 256), cudaSuccess);
    ASSERT_EQ(memory, place);
    streams.read(at, 256);
    EXPECT_EQ(unordered(), "");
    give_back(memory);
  }
}

// What is beside the block is not forgotten with it: an array of a block that lives.
TEST_P(OrderCheck, MemoryBesideKeepsItsPast) {
  const auto& [allocate, give_back] = GetParam();
  const Streams streams;
  void* beside = nullptr;
  ASSERT_EQ(allocate(&beside, 256), cudaSuccess);
  const auto at = reinterpret_cast<std::uintptr_t>(beside);
  streams.write(at, 256);
  void* place = std::aligned_alloc(256, 256);
  hand_out(place);
  void* memory = nullptr;
  ASSERT_EQ(allocate(&memory, 256), cudaSuccess);
  give_back(memory);
  streams.read(at, 256);
  EXPECT_NE(unordered().find("a copy on stream"), std::string::npos);
  give_back(beside);
}

// Ranges of one byte and more that meet, or do not: on one stream [begin, end) is written, on the
// other [64, 192) is read.
TEST(OrderCheckOfRanges, SeesWhatMeetsAndNothingElse) {
  const Streams streams;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 256), cudaSuccess);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  for (const auto& [begin, end, meets] : {std::tuple{0, 64, false},
                                          {192, 256, false},
                                          {0, 65, true},
                                          {191, 192, true},
                                          {100, 101, true},
                                          {0, 256, true},
                                          {64, 192, true}}) {
    SCOPED_TRACE(begin);
    cudaDeviceSynchronize();  // orders what was before
    streams.write(at + static_cast<std::uintptr_t>(begin), end - begin);
    streams.read(at + 64, 128);
    EXPECT_EQ(unordered().find("a copy on stream") != std::string::npos, meets);
  }
  // Of what was written twice, each stretch has its own last one.
  cudaDeviceSynchronize();
  streams.write(at, 256);
  cudaDeviceSynchronize();
  streams.write(at + 64, 32);
  streams.read(at + 96, 64);
  EXPECT_EQ(unordered(), "");
  streams.read(at + 32, 64);
  EXPECT_NE(unordered(), "");
  cudaFree(memory);
}

// The last element of what a kernel and a product read and write is as much theirs as the first.
TEST(OrderCheckOfRanges, ReachesTheEndsOfKernelsArrays) {
  const Streams streams;
  constexpr std::int64_t kRows = 4, kColumns = 8;
  constexpr std::int64_t kBytes = 4 * kRows * kColumns;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4 * kBytes), cudaSuccess);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  const auto array = [&](std::uintptr_t k) { return reinterpret_cast<void*>(at + k * kBytes); };
  cudaMemset(memory, 0, 4 * kBytes);
  using exec::cuda::Type;
  exec::cuda::Gemm gemm;
  const std::function<int()> launches[] = {
      [&] {
        return exec::cuda::dropout(streams.one, Type::Float32, kRows, kColumns, {}, array(0),
                                   array(1));
      },
      [&] {
        return gemm.linear(streams.one, Type::Float32, kRows, kColumns, kColumns, array(0),
                           array(2), nullptr, array(1), {array(3), 4});
      }};
  for (const auto& launch : launches) {
    for (const bool last : {true, false}) {
      cudaDeviceSynchronize();
      ASSERT_EQ(launch(), 0);
      streams.read(at + 2 * kBytes - (last ? 1 : 0), 1);
      EXPECT_EQ(unordered().find("a copy on stream") != std::string::npos, last);
    }
  }
  cudaDeviceSynchronize();
  cudaFree(memory);
}

INSTANTIATE_TEST_SUITE_P(
    Memory, OrderCheck,
    testing::Values(std::pair<Allocate, cudaError_t (*)(void*)>{cudaMalloc, cudaFree},
                    std::pair<Allocate, cudaError_t (*)(void*)>{cudaMallocHost, cudaFreeHost}),
    [](const auto& memory) { return std::string(memory.index == 0 ? "Device" : "Pinned"); });

}  // namespace
}  // namespace rehearse::cuda_double
