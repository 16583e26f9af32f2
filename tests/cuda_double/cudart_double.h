// SPDX-License-Identifier: Apache-2.0
// What the two halves of the runtime's double share: its memory (cudart_memory.cc) and its streams
// (cudart_double.cc).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "tests/cuda_double/touched.h"

namespace rehearse::cuda_double {

// What every call that needs a device returns.
cudaError_t no_device();
// Has this thread begun a capture? Meanwhile it may not allocate or copy at once.
bool is_capturing();
// What cudaStreamLegacy stands for.
cudaStream_t legacy();
// As enqueue(), also where the double idles.
int put(cudaStream_t stream, Touched touched, std::function<void()> work);

// Beside what is allocated by name.
void count_allocated(std::size_t bytes);
void count_freed(std::size_t bytes);
// The host has waited: the pool gives back what was freed.
void trim_pool();

}  // namespace rehearse::cuda_double
