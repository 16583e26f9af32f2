// SPDX-License-Identifier: Apache-2.0
// tests/cuda/device.h on the double, with a cuDNN.
#include <cuda_runtime_api.h>

#include "tests/cuda/device.h"
#include "tests/cuda_double/cudnn.h"

namespace rehearse::exec::cuda::testing {

std::string skip_reason() {
  cuda_double::install_cudnn(91900);
  return {};
}
bool has_wgmma() {
  return true;
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
