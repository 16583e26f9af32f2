// SPDX-License-Identifier: Apache-2.0
// One thread for every V elements.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

constexpr int kPointwiseThreads = 256;

// Calls f(i) for the first of every V elements of [0, count).
template <int V, class F>
__global__ void for_each_kernel(std::int64_t count, F f) {
  const std::int64_t i =
      (static_cast<std::int64_t>(blockIdx.x) * kPointwiseThreads + threadIdx.x) * V;
  if (i < count) f(i);
}
template <int V, class F>
int for_each(Stream stream, std::int64_t count, F f) {
  return launch(for_each_kernel<V, F>, dim3(blocks(count, kPointwiseThreads * V)),
                kPointwiseThreads, 0, stream, count, f);
}

}  // namespace rehearse::exec::cuda
