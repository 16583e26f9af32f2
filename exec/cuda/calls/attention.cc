// SPDX-License-Identifier: Apache-2.0
// Attention, on the engine that its shape was found to be fastest on.
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

// Of a plan that is there: it was made when cuDNN was chosen.
void* CudaKernels::cudnn_scratch(Lane l, bool backward, const AttentionShape& s) {
  const Result<std::int64_t> bytes = cudnn_->prepare(backward, type_, s);
  return bytes && bytes.value() > 0 ? scratch(l, bytes.value()) : nullptr;
}

void CudaKernels::check_cudnn(int error, const char* what) {
  if (error != 0) device_.check(error, std::string(what) + " by cuDNN (" + cudnn_->why() + ")");
}

void CudaKernels::attention(Lane l, const AttentionShape& s, const void* qkv, void* o, float* lse) {
  const AttentionEngine engine = forward_engine(l, s, qkv);
  if (engine == AttentionEngine::Cudnn) {
    void* const beside = cudnn_scratch(l, false, s);
    return check_cudnn(cudnn_->forward(on(l), type_, s, qkv, o, lse, beside), "attention");
  }
  device_.check(cuda::attention(on(l), type_, s, qkv, o, lse, engine), "attention");
}

void CudaKernels::attention_backward(Lane l, const AttentionShape& s, const void* d_o,
                                     const void* qkv, const void* o, const float* lse, void* dqkv,
                                     float* delta) {
  const AttentionEngine engine = backward_engine(l, s, d_o, qkv, o, lse);
  if (engine == AttentionEngine::Cudnn) {
    void* const beside = cudnn_scratch(l, true, s);
    return check_cudnn(cudnn_->backward(on(l), type_, s, d_o, qkv, o, lse, dqkv, delta, beside),
                       "attention backward");
  }
  device_.check(cuda::attention_backward(on(l), type_, s, d_o, qkv, o, lse, dqkv, delta,
                                         scratch(l, attention_backward_scratch(type_, s)), engine),
                "attention backward");
}

void CudaKernels::attention_part(Lane l, const AttentionPart& part, const void* qkv, const void* kv,
                                 float* sum, float* lse) {
  const AttentionEngine engine = forward_engine(l, part.shape, qkv, true);
  device_.check(cuda::attention_part(on(l), type_, part, qkv, kv, sum, lse, engine),
                "attention part");
}

void CudaKernels::attention_part_backward(Lane l, const AttentionPart& part, const void* d_o,
                                          const void* qkv, const void* kv, const void* o,
                                          const float* lse, float* dq, float* dkv, float* delta) {
  const AttentionEngine engine = backward_engine(l, part.shape, d_o, qkv, o, lse, true);
  device_.check(cuda::attention_part_backward(
                    on(l), type_, part, d_o, qkv, kv, o, lse, dq, dkv, delta,
                    scratch(l, attention_part_backward_scratch(type_, part)), engine),
                "attention part backward");
}

}  // namespace rehearse::exec::cuda
