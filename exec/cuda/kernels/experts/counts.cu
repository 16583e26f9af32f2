// SPDX-License-Identifier: Apache-2.0
// Numbers of rows: what a step counts, where no host looks.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;

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
  if (most == nullptr) return;
  __shared__ float room[kWarp];
  const std::int64_t each = s.experts / s.together;
  float largest = 0;  // rows are whole numbers, exact below 2^24
  for (std::int64_t i = threadIdx.x; i < s.lines * each; i += kThreads) {
    const std::int32_t* of = begin + i / each * (s.experts + 1) + i % each * s.together;
    largest = fmaxf(largest, static_cast<float>(of[s.together] - of[0]));
  }
  largest = over_block<Larger>(largest, room);
  if (threadIdx.x == 0 && static_cast<double>(largest) > *most)
    *most = static_cast<double>(largest);
}

// A block for each `together` experts. counts(experts / together)
__global__ void __launch_bounds__(kThreads)
    count_choices_kernel(std::int64_t together, std::int64_t copies,
                         const std::int32_t* __restrict__ chosen,
                         std::int32_t* __restrict__ counts) {
  __shared__ std::int32_t room[kWarp];
  const std::int64_t first = blockIdx.x * together;
  std::int32_t count = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < copies; i += kThreads) {
    count += chosen[i] >= first && chosen[i] < first + together;
  }
  count = over_block<Add>(count, room);
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(kThreads)
    largest_kernel(std::int64_t count, const std::int32_t* __restrict__ values, double* most) {
  __shared__ float room[kWarp];
  float largest = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    largest = fmaxf(largest, static_cast<float>(values[i]));
  }
  largest = over_block<Larger>(largest, room);
  if (threadIdx.x == 0 && static_cast<double>(largest) > *most)
    *most = static_cast<double>(largest);
}

__global__ void __launch_bounds__(kThreads)
    count_not_finite_kernel(std::int64_t count, const float* __restrict__ x, double* found) {
  __shared__ std::int32_t room[kWarp];
  std::int32_t lost = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) lost += !(fabsf(x[i]) < INFINITY);
  lost = over_block<Add>(lost, room);
  if (threadIdx.x == 0) *found += lost;
}

}  // namespace

int count_dropped(Stream stream, Type, const DropShape& s, const std::int32_t* chosen,
                  const std::int32_t* kept, double* dropped) {
  return launch(count_dropped_kernel, dim3(static_cast<unsigned>(s.experts)), kThreads, 0, stream,
                s.tokens * s.per_token, chosen, kept, dropped);
}

std::int64_t count_choices_scratch(const CountShape& s) {
  return 4 * s.experts / s.together;
}

int count_choices(Stream stream, const CountShape& s, std::int64_t copies,
                  const std::int32_t* chosen, double* most, void* scratch) {
  auto* counts = static_cast<std::int32_t*>(scratch);
  const std::int64_t each = s.experts / s.together;
  const int status = launch(count_choices_kernel, dim3(static_cast<unsigned>(each)), kThreads, 0,
                            stream, s.together, copies, chosen, counts);
  if (status != 0) return status;
  return launch(largest_kernel, dim3(1), kThreads, 0, stream, each, counts, most);
}

int count_not_finite(Stream stream, Type, std::int64_t count, const float* x, double* found) {
  return launch(count_not_finite_kernel, dim3(1), kThreads, 0, stream, count, x, found);
}

int count_rows(Stream stream, Type, const CountShape& s, const std::int32_t* begin, double* rows,
               double* most) {
  return launch(count_rows_kernel, dim3(1), kThreads, 0, stream, s, begin, rows, most);
}

}  // namespace rehearse::exec::cuda
