// SPDX-License-Identifier: Apache-2.0
// What is known of the device beside its speed.
#include "exec/cuda/make.h"

namespace rehearse::exec::cuda {
Result<GpuFacts> inspect(const Device& of) {
  const auto* source = dynamic_cast<const StreamSource*>(&of);
  int device = 0;
  cudaError_t error = source == nullptr ? cudaErrorInvalidValue : cudaGetDevice(&device);
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, which, device);
    return value;
  };
  GpuFacts facts{.name = std::string(of.name())};
  facts.capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                     attribute(cudaDevAttrComputeCapabilityMinor);
  facts.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  facts.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  facts.sm_clock_mhz = attribute(cudaDevAttrClockRate) / 1e3;
  facts.memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate) / 1e3;
  // What trials freed is the pool's until it is trimmed. What is left beside buffers and graphs:
  // the context, its kernels as far as they were called, and other processes on this device.
  cudaMemPool_t pool{};
  if (error == cudaSuccess && cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess) {
    error = cudaDeviceSynchronize();
    cudaMemPoolTrimTo(pool, 0);
  }
  std::size_t free = 0, total = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return Error{std::string("CUDA device: ") + cudaGetErrorString(error)};
  facts.memory_bytes = static_cast<std::int64_t>(total);
  facts.free_bytes = static_cast<std::int64_t>(free);
  facts.graphs = source->graphs();
  facts.communicators_bytes = source->communicators_bytes();
  facts.context_bytes = facts.memory_bytes - facts.free_bytes - source->held_bytes() -
                        facts.graphs.bytes - facts.communicators_bytes;
  return facts;
}

}  // namespace rehearse::exec::cuda
