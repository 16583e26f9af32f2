// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

namespace {

constexpr int kLeastMajor =
    8;  // compute capability that the kernels are compiled for (CMakeLists.txt)

// Why the runtime finds no device: which CUDA the driver is for, where that is too old a one.
std::string without_device(cudaError_t error) {
  int driver = 0, runtime = 0;
  if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    if (driver == 0) return "there is no driver's library (libcuda.so.1)";
    return "the driver is for CUDA " + dotted(driver) + ", this build needs " + dotted(runtime) +
           ": a newer driver, or a build with CUDA " + std::to_string(driver / 1000);
  }
  return error == cudaSuccess ? "none is visible" : cudaGetErrorString(error);
}

// The device of this machine's process `local`. One device and a CUDA_VISIBLE_DEVICES: the launcher
// shows every process its own.
Result<std::int32_t> device_of(std::int32_t local, std::int32_t count) {
  if (local < count) return local;
  if (count == 1 && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return 0;
  return Error{"process " + std::to_string(local) +
               " of this machine (LOCAL_RANK) has no device: " +
               (count == 1 ? "there is one" : "there are " + std::to_string(count))};
}

// Where attention is in 16 bits, and none of ours was asked for.
bool may_use_cudnn(const CudaOptions& options) {
  return options.type != ElementType::Float32 &&
         (options.attention.empty() || options.attention == "say" || options.attention == "cudnn");
}

}  // namespace

std::string dotted(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

Result<Backend> make_backend(const CudaOptions& options) {
  const Result<std::int32_t> there = devices();
  if (!there) return there.error();
  const Result<std::int32_t> device_number = device_of(options.device, there.value());
  if (!device_number) return device_number.error();
  CudaOptions mine = options;
  mine.device = device_number.value();
  const auto failed = [&](const std::string& why) {
    return Error{"CUDA device " + std::to_string(mine.device) + ": " + why};
  };
  if (const cudaError_t error = cudaSetDevice(mine.device); error != cudaSuccess) {
    return failed(cudaGetErrorString(error));
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, mine.device);
      error != cudaSuccess) {
    return failed(cudaGetErrorString(error));
  }
  if (properties.major < kLeastMajor) {
    return failed(std::string(properties.name) + " has compute capability " +
                  std::to_string(properties.major) + '.' + std::to_string(properties.minor) +
                  ": kernels are for " + std::to_string(kLeastMajor) + ".0 and later");
  }
  const bool has_wgmma = properties.major == 9;
  if (options.attention == "wgmma" && !has_wgmma) {
    return Error{"attention by wgmma needs a device of compute capability 9"};
  }
  std::unique_ptr<CudnnAttention> cudnn;
  if (may_use_cudnn(mine)) {
    std::string why;
    cudnn = CudnnAttention::open(&why);
    if (cudnn == nullptr && options.attention == "cudnn")
      return Error{"attention by cuDNN: " + why};
    if (cudnn == nullptr && options.attention == "say" && options.warn)
      options.warn("attention: no cuDNN to try: " + why);
  }
  const auto shared = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  const Type type = type_of(mine.type);
  auto device = std::make_unique<CudaDevice>(mine, properties.name, widest_head(type, shared));
  auto kernels = std::make_unique<CudaKernels>(*device, mine, has_wgmma, std::move(cudnn));
  return Backend{std::move(device), std::move(kernels)};
}

// Streams that share one of the default 8 hardware queues would wait for each other. NCCL's kernels
// begin in the order in which they are issued, which is one order on all ranks: however few
// processors there are, those that are to begin are not kept from them by later ones (NCCL's user
// guide, "Using multiple NCCL communicators concurrently").
void set_environment() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

Result<std::int32_t> devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return static_cast<std::int32_t>(count);
  return Error{"no CUDA device: " + without_device(error)};
}

}  // namespace rehearse::exec::cuda
