// SPDX-License-Identifier: Apache-2.0
// Numbers of rows: what a step counts, where no host looks, and which copies an expert has no room
// for.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;

// A copy is kept where fewer than `capacity` copies of its expert come before it: those with larger
// weights, and equal ones of earlier tokens. Counts, in copies^2 comparisons from shared memory, as
// sort_tokens does.
__global__ void __launch_bounds__(kThreads)
    drop_copies_kernel(DropShape s, const std::int32_t* __restrict__ chosen,
                       const float* __restrict__ weights, std::int32_t* __restrict__ kept) {
  __shared__ std::int32_t experts[kThreads];
  __shared__ float others[kThreads];
  const std::int64_t copies = s.tokens * s.per_token;
  const int here = static_cast<int>(threadIdx.x);
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kThreads + here;
  const std::int32_t expert = mine < copies ? chosen[mine] : -1;
  const float weight = mine < copies ? weights[mine] : 0.0F;
  std::int64_t before = 0;
  for (std::int64_t begin = 0; begin < copies; begin += kThreads) {
    const int count = static_cast<int>(copies - begin < kThreads ? copies - begin : kThreads);
    __syncthreads();
    if (here < count) {
      experts[here] = chosen[begin + here];
      others[here] = weights[begin + here];
    }
    __syncthreads();
    for (int k = 0; k < count; ++k) {
      const bool first = others[k] > weight || (others[k] == weight && begin + k < mine);
      before += experts[k] == expert && first;
    }
  }
  if (mine < copies) kept[mine] = before < s.capacity ? expert : -1;
}

// A block for each expert.
__global__ void __launch_bounds__(kThreads)
    count_dropped_kernel(std::int64_t copies, const std::int32_t* __restrict__ chosen,
                         const std::int32_t* __restrict__ kept, double* dropped) {
  __shared__ std::int32_t room[kWarp];
  std::int32_t count = 0;
  for (std::int64_t i = threadIdx.x; i < copies; i += kThreads) {
    count += kept[i] < 0 && chosen[i] == static_cast<std::int32_t>(blockIdx.x);
  }
  count = over_block<Add>(count, room);
  if (threadIdx.x == 0) dropped[blockIdx.x] += count;
}

__global__ void __launch_bounds__(kThreads)
    count_rows_kernel(CountShape s, const std::int32_t* __restrict__ begin, double* rows,
                      double* most) {
  if (rows != nullptr) {
    for (int e = static_cast<int>(threadIdx.x); e < s.experts; e += kThreads) {
      rows[e] += begin[e + 1] - begin[e];
    }
  }
  if (most == nullptr || threadIdx.x > 0) return;
  double largest = *most;
  for (std::int64_t e = 0; e < s.experts; e += s.together) {
    const double sum = begin[e + s.together] - begin[e];
    if (sum > largest) largest = sum;
  }
  *most = largest;
}

}  // namespace

int drop_copies(Stream stream, Type, const DropShape& s, const std::int32_t* chosen,
                const float* weights, std::int32_t* kept) {
  return launch(drop_copies_kernel, dim3(blocks(s.tokens * s.per_token, kThreads)), kThreads, 0,
                stream, s, chosen, weights, kept);
}

int count_dropped(Stream stream, Type, const DropShape& s, const std::int32_t* chosen,
                  const std::int32_t* kept, double* dropped) {
  return launch(count_dropped_kernel, dim3(static_cast<unsigned>(s.experts)), kThreads, 0, stream,
                s.tokens * s.per_token, chosen, kept, dropped);
}

int count_rows(Stream stream, Type, const CountShape& s, const std::int32_t* begin, double* rows,
               double* most) {
  return launch(count_rows_kernel, dim3(1), kThreads, 0, stream, s, begin, rows, most);
}

}  // namespace rehearse::exec::cuda
