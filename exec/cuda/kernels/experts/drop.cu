// SPDX-License-Identifier: Apache-2.0
// Copies that an expert has no room for: its copies are listed by sort.cu, and a block for each
// expert finds the weight of the last one that it takes, bit by bit, by counting.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;

// As large as the weight is; what is not a number is the least, and of zeros none has a sign.
__device__ __forceinline__ std::uint32_t key_of(float weight) {
  const std::uint32_t bits = __float_as_uint(weight == weight ? weight + 0.0F : -1.0F);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

// A sum over the block; a __syncthreads lies between two.
__device__ __forceinline__ std::int32_t sum_of(std::int32_t value, std::int32_t* room) {
  __syncthreads();
  return over_block<Add>(value, room);
}

// order: copies by expert, in their order; begin(experts + 1).
__global__ void __launch_bounds__(kThreads)
    drop_copies_kernel(std::int64_t capacity, const float* __restrict__ weights,
                       const std::int32_t* __restrict__ order,
                       const std::int32_t* __restrict__ begin, std::int32_t* __restrict__ kept) {
  __shared__ std::int32_t room[kWarp];
  __shared__ std::int32_t equals[kThreads];
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t count = begin[expert + 1] - begin[expert];
  const std::int32_t* mine = order + begin[expert];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  // The largest key that at least `capacity` copies reach; 0 where there are no more of them.
  std::uint32_t least = 0;
  for (int bit = 31; bit >= 0 && count > capacity; --bit) {
    const std::uint32_t tried = least | 1U << bit;
    std::int32_t reach = 0;
    for (std::int32_t i = thread; i < count; i += kThreads) {
      reach += key_of(weights[mine[i]]) >= tried;
    }
    if (sum_of(reach, room) >= capacity) least = tried;
  }
  // The first of equal ones are kept: every thread has a stretch of the list.
  std::int32_t more = 0;
  const std::int32_t each = (count + kThreads - 1) / kThreads;
  const std::int32_t from = thread * each < count ? thread * each : count;
  const std::int32_t to = from + each < count ? from + each : count;
  std::int32_t equal = 0;
  for (std::int32_t i = from; i < to; ++i) {
    const std::uint32_t key = key_of(weights[mine[i]]);
    more += key > least;
    equal += key == least;
  }
  equals[thread] = equal;
  std::int64_t taken = sum_of(more, room);
  for (int other = 0; other < thread; ++other) taken += equals[other];
  for (std::int32_t i = from; i < to; ++i) {
    const std::uint32_t key = key_of(weights[mine[i]]);
    const bool keep = key > least || (key == least && taken++ < capacity);
    kept[mine[i]] = keep ? expert : -1;
  }
}

CopiesShape list_of(const DropShape& s) {
  const std::int64_t copies = s.tokens * s.per_token;
  return {.tokens = copies, .per_token = 1, .experts = s.experts, .room = copies};
}
std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

}  // namespace

// Rows of the copies, the copies of rows, first rows, and the sort's own.
std::int64_t drop_copies_scratch(const DropShape& s) {
  const CopiesShape list = list_of(s);
  return 2 * aligned(4 * list.tokens) + aligned(4 * (s.experts + 1)) + sort_copies_scratch(list);
}

int drop_copies(Stream stream, const DropShape& s, const std::int32_t* chosen, const float* weights,
                std::int32_t* kept, void* scratch) {
  const CopiesShape list = list_of(s);
  auto* at = static_cast<std::byte*>(scratch);
  const auto take = [&at](std::int64_t bytes) {
    auto* mine = reinterpret_cast<std::int32_t*>(at);
    at += aligned(bytes);
    return mine;
  };
  std::int32_t* row = take(4 * list.tokens);
  std::int32_t* order = take(4 * list.tokens);
  std::int32_t* begin = take(4 * (s.experts + 1));
  const int status = sort_copies(stream, list, chosen, row, order, begin, at);
  if (status != 0) return status;
  return launch(drop_copies_kernel, dim3(static_cast<unsigned>(s.experts)), kThreads, 0, stream,
                s.capacity, weights, order, begin, kept);
}

}  // namespace rehearse::exec::cuda
