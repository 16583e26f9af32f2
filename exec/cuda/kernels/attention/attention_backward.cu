// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, by mma.sync. The tiles are the largest that do not spill, on sm_80 and
// sm_90; which is fastest was not measured.
#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

int fast_attention_backward(Stream stream, const BackwardCall<Bf16>& call) {
  return call.part.shape.head_dim <= 64
             ? launch_backward<MmaSync<1>, 64, 64, 1, MmaSync<2>, 32, 1>(stream, call)
             : launch_backward<MmaSync<1>, 128, 32, 1, MmaSync<1>, 64, 1>(stream, call);
}

}  // namespace rehearse::exec::cuda
