// SPDX-License-Identifier: Apache-2.0
// Flash attention, forward, by mma.sync.
#include "exec/cuda/kernels/attention/attention_forward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

template <class T>
int fast_attention(Stream stream, const ForwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return fast_attention_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_forward<MmaSync<T, 2>, 128, 128, 32, 1>(stream, call);
  }
  return launch_forward<MmaSync<T, 2>, 64, 64, 64, 1>(stream, call);
}

template int fast_attention(Stream, const ForwardCall<Bf16>&);
template int fast_attention(Stream, const ForwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
