// SPDX-License-Identifier: Apache-2.0
// The rows of kernel_rows.inc on a GPU. A row that is one launch needs nothing here; for a COMPOSED
// one, and for the end of a step, there is a member function, written by hand.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exec/backend/kernels.h"
#include "exec/cuda/calls/attention_choice.h"
#include "exec/cuda/calls/gemm.h"
#include "exec/cuda/calls/kernels.h"
#include "exec/cuda/cuda_device.h"

namespace rehearse::exec::cuda {

class CudaKernels final : public Kernels {
 public:
  // REQUIRES: `device` outlives it. has_wgmma: of the device. cudnn: may be null.
  CudaKernels(CudaDevice& device, const CudaOptions& options, bool has_wgmma,
              std::unique_ptr<CudnnAttention> cudnn)
      : device_(device),
        type_(type_of(options.type)),
        gemm_(options.warn),
        cudnn_(std::move(cudnn)),
        choice_(has_wgmma, options.attention, options.warn, cudnn_.get()) {}

#define COMPOSED(name, parameters, arguments) void name(Lane lane, SPREAD parameters) override;
#define KERNEL(name, parameters, arguments)                                          \
  void name(Lane lane, SPREAD parameters) override {                                 \
    device_.check(cuda::name(device_.stream(lane), type_, SPREAD arguments), #name); \
  }
#include "exec/backend/kernel_rows.inc"
  void norms(Lane lane, std::span<const NormRange> ranges, const float* loss, std::int64_t slots,
             double* norms) override;
  void update(Lane lane, const UpdateArguments& arguments) override;
  std::unique_ptr<Kernels> trials(Lane lane, std::byte* arena, std::int64_t bytes) override;
  std::string choices() const override {
    return gemm_.choices() + choice_.choices();
  }
  void take_choices(const std::string& lines) override;

 private:
  friend class CudaTrials;
  AttentionEngine forward_engine(Lane lane, const AttentionShape& shape, const void* qkv,
                                 bool part = false) {
    return choice_.forward(on(lane), type_, shape, qkv, part);
  }
  AttentionEngine backward_engine(Lane lane, const AttentionShape& shape, const void* d_o,
                                  const void* qkv, const void* o, const float* lse,
                                  bool part = false) {
    return choice_.backward(on(lane), type_, shape, d_o, qkv, o, lse, part);
  }
  void* cudnn_scratch(Lane lane, bool backward, const AttentionShape& shape);
  void check_cudnn(int error, const char* what);
  cudaStream_t on(Lane lane) {
    return device_.stream(lane);
  }
  void* scratch(Lane lane, std::int64_t bytes) {
    return device_.buffers().scratch(lane, bytes);
  }
  GemmWorkspace workspace(Lane lane) {
    return device_.buffers().workspace(lane);
  }

  CudaDevice& device_;
  Type type_;
  Gemm gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;
  AttentionChoice choice_;
  std::vector<Lane> tried_on_;
};

}  // namespace rehearse::exec::cuda
