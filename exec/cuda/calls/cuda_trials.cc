// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calls/cuda_trials.h"

#include <sstream>
#include <string>

namespace rehearse::exec::cuda {

// Zeros would be multiplied in less power, hence at a higher clock, and would hide what differs.
CudaTrials::CudaTrials(CudaKernels& kernels, Lane lane, std::byte* arena, std::int64_t bytes)
    : NullKernels(nullptr), kernels_(kernels), lane_(lane), arena_(arena), bytes_(bytes) {
  kernels_.gemm_.only_plan(true);
  kernels_.device_.check(
      noise(kernels_.on(lane), bytes / 4, reinterpret_cast<std::uint32_t*>(arena)), "noise");
}

// What writes the arena next does not wait for the stream.
CudaTrials::~CudaTrials() {
  kernels_.gemm_.only_plan(false);
  const cudaStream_t stream = kernels_.on(lane_);
  kernels_.device_.check(cudaMemsetAsync(arena_, 0, static_cast<std::size_t>(bytes_), stream),
                         "clear");
  kernels_.device_.check(cudaStreamSynchronize(stream), "trials of kernels");
}

std::unique_ptr<Kernels> CudaKernels::trials(Lane lane, std::byte* arena, std::int64_t bytes) {
  if (type_ == Type::Float32) return nullptr;
  tried_on_.push_back(lane);
  return std::make_unique<CudaTrials>(*this, lane, arena, bytes);
}

void CudaKernels::take_choices(const std::string& lines) {
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    gemm_.take(line);
    choice_.take(type_, line);
  }
  // A lane has its own: the trial had memory for one.
  const std::int64_t bytes = choice_.scratch();
  if (bytes == 0) return;
  for (const Lane lane : tried_on_) {
    if (device_.buffers().reserve_scratch(lane, bytes)) continue;
    return choice_.leave_out_cudnn("no " + std::to_string(bytes) +
                                   " bytes of GPU memory beside the arenas");
  }
}

}  // namespace rehearse::exec::cuda
