// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused kernels, where cuDNN is: a third engine beside those of kernels.h.
//
// A plan is made once per shape and kept; making one compiles for a second or more, so it is done
// before the first step (attention_choice.h). Gradients are summed in one order, as everywhere
// here: cuDNN's engines for that keep dP, 2 bytes for each pair of tokens and head, which is most
// of what they want beside the arrays. No cuDNN header is needed here. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "exec/cuda/calls/kernels.h"
#include "schedules/base/result.h"

namespace rehearse::exec::cuda {

class CudnnAttention {
 public:
  // "cuDNN 9.19.0"; "no cuDNN".
  static std::string version();
  // Null: there is no cuDNN here, and `why` says so; or it cannot be used. Of the current device.
  static std::unique_ptr<CudnnAttention> open(std::string* why);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // May it be asked for a plan? 16 bits; causal, with a window or without; nothing else of a form.
  static bool takes(Type type, const AttentionShape& shape);

  // Makes the plan, unless it is made. Bytes of `scratch` below. Error: cuDNN's own words.
  Result<std::int64_t> prepare(bool backward, Type type, const AttentionShape& shape);

  // As attention() and attention_backward() of kernels.h. REQUIRES: prepared; scratch of as many
  // bytes. 999 (cudaErrorUnknown) where cuDNN fails; why() then says how.
  int forward(Stream stream, Type type, const AttentionShape& shape, const void* qkv, void* o,
              float* lse, void* scratch);
  int backward(Stream stream, Type type, const AttentionShape& shape, const void* d_o,
               const void* qkv, const void* o, const float* lse, void* dqkv, float* delta,
               void* scratch);
  const std::string& why() const;

 private:
  struct Plans;
  explicit CudnnAttention(std::unique_ptr<Plans> plans);
  std::unique_ptr<Plans> plans_;
};

}  // namespace rehearse::exec::cuda
