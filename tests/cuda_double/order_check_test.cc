// SPDX-License-Identifier: Apache-2.0
// The double's own memory of what touched what: memory that changes hands has no past, and memory
// that does not keeps it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

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

INSTANTIATE_TEST_SUITE_P(
    Memory, OrderCheck,
    testing::Values(std::pair<Allocate, cudaError_t (*)(void*)>{cudaMalloc, cudaFree},
                    std::pair<Allocate, cudaError_t (*)(void*)>{cudaMallocHost, cudaFreeHost}),
    [](const auto& memory) { return std::string(memory.index == 0 ? "Device" : "Pinned"); });

}  // namespace
}  // namespace rehearse::cuda_double
