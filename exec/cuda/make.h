// SPDX-License-Identifier: Apache-2.0
// What the module's parts show each other.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "exec/cuda/cuda_module.h"
#include "exec/cuda/watchdog.h"

namespace rehearse::exec::cuda {

// What the device shows of itself: streams that a communicator enqueues on, and what it holds.
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  virtual cudaStream_t stream(Lane lane) = 0;
  virtual void check(int error, std::string_view what) = 0;
  virtual std::int64_t held_bytes() const = 0;  // of the device's memory
  // False after a step that failed: kernels may still be stuck on the device.
  virtual bool healthy() const = 0;
  // NCCL's share of the device's memory, when it had connected.
  virtual void taken_by_communicators(std::int64_t bytes) = 0;
  virtual std::int64_t communicators_bytes() const = 0;
  virtual Watchdog& watchdog() = 0;
  virtual void progressed() = 0;  // more of a step is issued
  virtual const GraphFacts& graphs() const = 0;
};

// What CUDA and NCCL read from the environment before they are first called; what is set stays.
void set_environment();
Result<std::int32_t> devices();
std::string dotted(int version);  // of CUDA: 13000 -> "13.0"
Result<Backend> make_backend(const CudaOptions& options);
Result<GpuFacts> inspect(const Device& device);
Result<std::unique_ptr<Communicator>> make_nccl(Device& device, const NcclOptions& options);

}  // namespace rehearse::exec::cuda
