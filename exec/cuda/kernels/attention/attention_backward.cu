// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, by mma.sync. The tiles are the largest that do not spill, on sm_80 and
// sm_90; which is fastest was not measured.
#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

template <class T>
int fast_attention_backward(Stream stream, const BackwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return fast_attention_backward_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_backward<128, 128, MmaSync<T, 1>, 32, 1, MmaSync<T, 1>, 32, 1>(stream, call);
  }
  return launch_backward<64, 64, MmaSync<T, 1>, 64, 1, MmaSync<T, 2>, 32, 1>(stream, call);
}

template int fast_attention_backward(Stream, const BackwardCall<Bf16>&);
template int fast_attention_backward(Stream, const BackwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
