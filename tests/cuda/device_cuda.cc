// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "tests/cuda/device.h"

namespace rehearse::exec::cuda::testing {

std::string skip_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return "no CUDA device: error " + std::to_string(static_cast<int>(error)) + ", " +
           cudaGetErrorString(error);
  }
  return count > 0 ? "" : "no CUDA device";
}
bool has_wgmma() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
}
void begin_pass(int) {}
void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void release(void* memory) {
  cudaFree(memory);
}
void to_device(void* to, const void* from, std::size_t bytes) {
  cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}
void from_device(void* to, const void* from, std::size_t bytes) {
  cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
int synchronise() {
  return static_cast<int>(cudaDeviceSynchronize());
}

}  // namespace rehearse::exec::cuda::testing
