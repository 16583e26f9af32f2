// SPDX-License-Identifier: Apache-2.0
// Which copy of a token lies in which row: counting sorts whose order is that of the copies, so
// that equal choices give equal orders, those of the CPU. A block counts a chunk of copies, one
// block adds the chunks up, and each chunk's block goes through its copies again.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 1024;  // copies

// values(count) becomes the sum of those before each, by the first warp. Returns the sum of all.
__device__ __forceinline__ std::int32_t sums_before(int count, std::int32_t* values) {
  const int lane = static_cast<int>(threadIdx.x), each = (count + kWarp - 1) / kWarp;
  const int begin = lane * each < count ? lane * each : count;
  const int end = begin + each < count ? begin + each : count;
  std::int32_t own = 0;
  for (int k = begin; k < end; ++k) own += values[k];
  std::int32_t upto = own;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const std::int32_t other =
        __shfl_sync(0xFFFFFFFFU, upto, lane < distance ? lane : lane - distance);
    if (lane >= distance) upto += other;
  }
  std::int32_t before = upto - own;
  for (int k = begin; k < end; ++k) {
    const std::int32_t value = values[k];
    values[k] = before;
    before += value;
  }
  return __shfl_sync(0xFFFFFFFFU, upto, kWarp - 1);
}

// The chunk of this block into shared memory. Returns its length.
__device__ __forceinline__ int read_chunk(std::int64_t copies, const std::int32_t* chosen,
                                          std::int32_t* chunk) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const int length = static_cast<int>(copies - begin < kChunk ? copies - begin : kChunk);
  for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads) {
    chunk[i] = chosen[begin + i];
  }
  __syncthreads();
  return length;
}

// counts(chunks, experts), and no row has a copy yet.
__global__ void __launch_bounds__(kThreads)
    count_chunks_kernel(CopiesShape s, const std::int32_t* __restrict__ chosen,
                        std::int32_t* __restrict__ counts, std::int32_t* __restrict__ token) {
  __shared__ std::int32_t chunk[kChunk];
  const int length = read_chunk(s.tokens * s.per_token, chosen, chunk);
  for (int e = static_cast<int>(threadIdx.x); e < s.experts; e += kThreads) {
    const std::int32_t expert = static_cast<std::int32_t>(s.first) + e;
    std::int32_t count = 0;
#pragma unroll 8
    for (int i = 0; i < length; ++i) count += chunk[i] == expert;
    counts[blockIdx.x * s.experts + e] = count;
  }
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < s.room;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    token[i] = -1;
  }
}

// counts becomes the copies of an expert in the chunks before; begin(experts + 1).
__global__ void __launch_bounds__(kThreads)
    add_chunks_kernel(int chunks, int experts, std::int32_t* __restrict__ counts,
                      std::int32_t* begin) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    std::int32_t before = 0;
    for (int c = 0; c < chunks; ++c) {
      const std::int32_t count = counts[c * experts + e];
      counts[c * experts + e] = before;
      before += count;
    }
    begin[e] = before;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  const std::int32_t all = sums_before(experts, begin);
  if (threadIdx.x == 0) begin[experts] = all;
}

// A thread follows an expert through the chunk.
__global__ void __launch_bounds__(kThreads)
    place_copies_kernel(CopiesShape s, const std::int32_t* __restrict__ chosen,
                        const std::int32_t* __restrict__ counts,
                        const std::int32_t* __restrict__ begin, std::int32_t* __restrict__ row,
                        std::int32_t* __restrict__ token) {
  __shared__ std::int32_t chunk[kChunk];
  const int length = read_chunk(s.tokens * s.per_token, chosen, chunk);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads) {
    if (chunk[i] < s.first || chunk[i] >= s.first + s.experts) row[first + i] = -1;
  }
  for (int e = static_cast<int>(threadIdx.x); e < s.experts; e += kThreads) {
    const std::int32_t expert = static_cast<std::int32_t>(s.first) + e;
    std::int64_t next = begin[e] + counts[blockIdx.x * s.experts + e];
    // Where the rows of its slot begin, and how many of them there are.
    std::int64_t base = 0, begun = 0, room = s.room;
    if (s.slot > 0) {
      base = e / s.per_slot * s.slot;
      begun = begin[e / s.per_slot * s.per_slot];
      room = s.slot;
    }
    for (int i = 0; i < length; ++i) {
      if (chunk[i] != expert) continue;
      const std::int64_t place = next++ - begun, at = base + place;
      const bool fits = place < room && at < s.room;
      row[first + i] = fits ? static_cast<std::int32_t>(at) : -1;
      if (fits) token[at] = static_cast<std::int32_t>((first + i) / s.per_token);
    }
  }
}

// By expert e of those here, then source: starts(per_source sources + 1), the rows before; where
// (likewise), the place of the first of them among what came.
__global__ void __launch_bounds__(kThreads)
    count_arrived_kernel(ArrivedShape s, const std::int32_t* __restrict__ begins,
                         std::int32_t* starts, std::int32_t* __restrict__ where,
                         std::int32_t* __restrict__ begin) {
  const int entries = static_cast<int>(s.per_source * s.sources);
  const auto place = [&](std::int64_t source, std::int64_t e) {
    const std::int32_t* first = begins + source * (s.experts + 1) + s.first;
    const std::int64_t rows = first[e] - first[0];
    return s.slot > 0 && rows > s.slot ? s.slot : rows;
  };
  for (int k = static_cast<int>(threadIdx.x); k < entries; k += kThreads) {
    const std::int64_t e = k / s.sources, source = k % s.sources, member = source % s.members;
    std::int64_t before = source / s.members * s.slot;
    for (std::int64_t other = member; s.slot == 0 && other < source; other += s.members) {
      before += place(other, s.per_source);
    }
    starts[k] = static_cast<std::int32_t>(place(source, e + 1) - place(source, e));
    where[k] = static_cast<std::int32_t>(member * s.stride + before + place(source, e));
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const std::int32_t all = sums_before(entries, starts);
    if (threadIdx.x == 0) starts[entries] = all;
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e <= s.per_source; e += kThreads) {
    begin[e] = starts[e * s.sources];
  }
}

// A thread finds whose row it is by halving.
__global__ void __launch_bounds__(kThreads)
    place_arrived_kernel(std::int64_t room, int entries, const std::int32_t* __restrict__ starts,
                         const std::int32_t* __restrict__ where, std::int32_t* __restrict__ from) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= room) return;
  if (row >= starts[entries]) {
    from[row] = -1;
    return;
  }
  int low = 0, high = entries;  // starts[low] <= row < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  from[row] = where[low] + static_cast<std::int32_t>(row - starts[low]);
}

int chunks_of(const CopiesShape& s) {
  return static_cast<int>(blocks(s.tokens * s.per_token, kChunk));
}

}  // namespace

std::int64_t sort_copies_scratch(const CopiesShape& s) {
  return 4 * chunks_of(s) * s.experts;
}

int sort_copies(Stream stream, const CopiesShape& s, const std::int32_t* chosen, std::int32_t* row,
                std::int32_t* token, std::int32_t* begin, void* scratch) {
  if (s.tokens * s.per_token > INT32_MAX / 2 || s.room > INT32_MAX / 2) return kInvalidValue;
  auto* counts = static_cast<std::int32_t*>(scratch);
  const int chunks = chunks_of(s);
  const dim3 grid(static_cast<unsigned>(chunks));
  int status = launch(count_chunks_kernel, grid, kThreads, 0, stream, s, chosen, counts, token);
  if (status == 0) {
    status = launch(add_chunks_kernel, dim3(1), kThreads, 0, stream, chunks,
                    static_cast<int>(s.experts), counts, begin);
  }
  if (status != 0) return status;
  return launch(place_copies_kernel, grid, kThreads, 0, stream, s, chosen, counts, begin, row,
                token);
}

std::int64_t sort_rows_scratch(const ArrivedShape& s) {
  return 4 * (2 * s.per_source * s.sources + 1);
}

int sort_rows(Stream stream, const ArrivedShape& s, const std::int32_t* begins, std::int32_t* from,
              std::int32_t* begin, void* scratch) {
  if (s.members * s.stride > INT32_MAX / 2 || s.room > INT32_MAX / 2) return kInvalidValue;
  const std::int64_t entries = s.per_source * s.sources;
  auto* starts = static_cast<std::int32_t*>(scratch);
  std::int32_t* where = starts + entries + 1;
  const int status =
      launch(count_arrived_kernel, dim3(1), kThreads, 0, stream, s, begins, starts, where, begin);
  if (status != 0) return status;
  return launch(place_arrived_kernel, dim3(blocks(s.room, kThreads)), kThreads, 0, stream, s.room,
                static_cast<int>(entries), starts, where, from);
}

}  // namespace rehearse::exec::cuda
