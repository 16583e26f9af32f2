// SPDX-License-Identifier: Apache-2.0
// How long work takes on a stream: what chooses between two ways of doing it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

namespace rehearse::exec::cuda {

// Milliseconds of the fastest of `repetitions` runs behind one that warms up; negative: one failed.
// `run` enqueues on the stream and says whether it could. Waits for the device.
template <class Run>
float best_time(cudaStream_t stream, int repetitions, Run run) {
  cudaEvent_t begin = nullptr, end = nullptr;
  float best = -1;
  bool right = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
  for (int k = 0; right && k <= repetitions; ++k) {
    float now = 0;
    right = cudaEventRecord(begin, stream) == cudaSuccess && run() &&
            cudaEventRecord(end, stream) == cudaSuccess &&
            cudaEventSynchronize(end) == cudaSuccess &&
            cudaEventElapsedTime(&now, begin, end) == cudaSuccess;
    if (right && k > 0) best = best < 0 ? now : std::min(best, now);
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (!right) cudaGetLastError();  // clears it
  return right ? best : -1;
}

}  // namespace rehearse::exec::cuda
