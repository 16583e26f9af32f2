// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, by mma.sync. The tiles are the largest that do not spill, on sm_80 and
// sm_90; which is fastest was not measured.
#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

int fast_attention_backward(Stream stream, const BackwardCall<Bf16>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return fast_attention_backward_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_backward<128, 128, MmaSync<1>, 32, 1, MmaSync<1>, 32, 1>(stream, call);
  }
  return launch_backward<64, 64, MmaSync<1>, 64, 1, MmaSync<2>, 32, 1>(stream, call);
}

}  // namespace rehearse::exec::cuda
