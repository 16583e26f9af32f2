// SPDX-License-Identifier: Apache-2.0
// Attention, on the engine that its shape was found to be fastest on.
#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

void CudaKernels::attention(Lane l, const AttentionShape& s, const void* qkv, void* o, float* lse) {
  const AttentionEngine engine = forward_engine(l, s, qkv);
  device_.check(cuda::attention(on(l), type_, s, qkv, o, lse, engine), "attention");
}

void CudaKernels::attention_backward(Lane l, const AttentionShape& s, const void* d_o,
                                     const void* qkv, const void* o, const float* lse, void* dqkv,
                                     float* delta) {
  const AttentionEngine engine = backward_engine(l, s, d_o, qkv, o, lse);
  device_.check(cuda::attention_backward(on(l), type_, s, d_o, qkv, o, lse, dqkv, delta,
                                         scratch(l, attention_backward_scratch(type_, s)), engine),
                "attention backward");
}

void CudaKernels::attention_part(Lane l, const AttentionPart& part, const void* qkv, const void* kv,
                                 float* sum, float* lse) {
  const AttentionEngine engine = forward_engine(l, part.shape, qkv);
  device_.check(cuda::attention_part(on(l), type_, part, qkv, kv, sum, lse, engine),
                "attention part");
}

void CudaKernels::attention_part_backward(Lane l, const AttentionPart& part, const void* d_o,
                                          const void* qkv, const void* kv, const void* o,
                                          const float* lse, float* dq, float* dkv, float* delta) {
  const AttentionEngine engine = backward_engine(l, part.shape, d_o, qkv, o, lse);
  device_.check(cuda::attention_part_backward(
                    on(l), type_, part, d_o, qkv, kv, o, lse, dq, dkv, delta,
                    scratch(l, attention_part_backward_scratch(type_, part)), engine),
                "attention part backward");
}

}  // namespace rehearse::exec::cuda
