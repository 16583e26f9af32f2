// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

Result<Backend> make_backend(const CudaOptions& options) {
  const Result<std::int32_t> there = devices();
  if (!there) return there.error();
  CudaOptions mine = options;
  mine.device = options.device % there.value();
  if (const cudaError_t error = cudaSetDevice(mine.device); error != cudaSuccess) {
    return Error{"CUDA device " + std::to_string(mine.device) + ": " + cudaGetErrorString(error)};
  }
  cudaDeviceProp properties{};
  const cudaError_t asked = cudaGetDeviceProperties(&properties, mine.device);
  const bool has_wgmma = properties.major == 9;
  if (options.attention == "wgmma" && !has_wgmma) {
    return Error{"attention by wgmma needs a device of compute capability 9"};
  }
  auto device = std::make_unique<CudaDevice>(mine, properties.name);
  device->check(asked, "cudaGetDeviceProperties");
  auto kernels = std::make_unique<CudaKernels>(*device, mine, has_wgmma);
  return Backend{std::move(device), std::move(kernels)};
}

Result<std::int32_t> devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return static_cast<std::int32_t>(count);
  return Error{std::string("no CUDA device") +
               (error == cudaSuccess ? "" : std::string(": ") + cudaGetErrorString(error))};
}

}  // namespace rehearse::exec::cuda
