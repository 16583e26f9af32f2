// SPDX-License-Identifier: Apache-2.0
// Flash attention by wgmma. Compiled for sm_90a alone: no other device has a kernel of it.
#include "exec/cuda/kernels/attention/attention_wgmma.cuh"

#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_forward.cuh"

namespace rehearse::exec::cuda {

// The tiles are the largest whose registers let two warpgroups or more of a processor work at
// different things; which is fastest was not measured.
template <class T>
int wgmma_attention(Stream stream, const ForwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return wgmma_attention_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_forward<Wgmma<T, 2>, 128, 128, 128, 1>(stream, call);
  }
  return launch_forward<Wgmma<T, 2>, 64, 64, 64, 2>(stream, call);
}

template <class T>
int wgmma_attention_backward(Stream stream, const BackwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return wgmma_attention_backward_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_backward<128, 128, Wgmma<T, 1>, 64, 2, Wgmma<T, 2>, 64, 1>(stream, call);
  }
  return launch_backward<64, 64, Wgmma<T, 1>, 64, 2, Wgmma<T, 2>, 64, 2>(stream, call);
}

template int wgmma_attention(Stream, const ForwardCall<Bf16>&);
template int wgmma_attention(Stream, const ForwardCall<Fp16>&);
template int wgmma_attention_backward(Stream, const BackwardCall<Bf16>&);
template int wgmma_attention_backward(Stream, const BackwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
