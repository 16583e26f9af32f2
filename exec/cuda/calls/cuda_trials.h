// SPDX-License-Identifier: Apache-2.0
// What tries kernels before the first step: rows whose way is chosen by trial make their choice,
// all others write nothing that is kept.
#pragma once

#include "exec/backend/null_backend.h"
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

class CudaTrials final : public NullKernels {
 public:
  // REQUIRES: `kernels` outlives it, and computes nothing meanwhile.
  CudaTrials(CudaKernels& kernels, Lane lane, std::byte* arena, std::int64_t bytes);
  ~CudaTrials() override;
  CudaTrials(const CudaTrials&) = delete;
  CudaTrials& operator=(const CudaTrials&) = delete;

#define KERNEL(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments)         \
  void name(Lane lane, SPREAD parameters) override { \
    kernels_.name(lane, SPREAD arguments);           \
  }
#include "exec/backend/kernel_rows.inc"
  void router_logits(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x,
                     const void* w, const void* bias, float* y) override {
    kernels_.router_logits(lane, m, n, k, x, w, bias, y);
  }
  void attention(Lane lane, const AttentionShape& shape, const void* qkv, void*, float*) override {
    kernels_.forward_engine(lane, shape, qkv);
  }
  void attention_backward(Lane lane, const AttentionShape& shape, const void* d_o, const void* qkv,
                          const void* o, const float* lse, void*, float*) override {
    kernels_.backward_engine(lane, shape, d_o, qkv, o, lse);
  }
  void attention_part(Lane lane, const AttentionPart& part, const void* qkv, const void*, float*,
                      float*) override {
    kernels_.forward_engine(lane, part.shape, qkv, true);
  }
  void attention_part_backward(Lane lane, const AttentionPart& part, const void* d_o,
                               const void* qkv, const void*, const void* o, const float* lse,
                               float*, float*, float*) override {
    kernels_.backward_engine(lane, part.shape, d_o, qkv, o, lse, true);
  }

 private:
  CudaKernels& kernels_;
  Lane lane_;
  std::byte* arena_;
  std::int64_t bytes_;
};

}  // namespace rehearse::exec::cuda
