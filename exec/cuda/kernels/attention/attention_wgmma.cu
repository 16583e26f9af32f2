// SPDX-License-Identifier: Apache-2.0
// Flash attention by wgmma. Compiled for sm_90a alone: no other device has a kernel of it.
#include "exec/cuda/kernels/attention/attention_wgmma.cuh"

#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_forward.cuh"

namespace rehearse::exec::cuda {

// The tiles are the largest whose registers let two warpgroups or more of a processor work at
// different things; which is fastest was not measured.
int wgmma_attention(Stream stream, const ForwardCall<Bf16>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return wgmma_attention_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_forward<Wgmma<2>, 128, 128, 128, 1>(stream, call);
  }
  return launch_forward<Wgmma<2>, 64, 64, 64, 2>(stream, call);
}

int wgmma_attention_backward(Stream stream, const BackwardCall<Bf16>& call) {
  const AttentionShape& s = call.part.shape;
  if (s.head_dim > 128) return wgmma_attention_backward_192(stream, call);
  if (s.head_dim > 64 || s.values() > 64) {
    return launch_backward<128, 128, Wgmma<1>, 64, 2, Wgmma<2>, 64, 1>(stream, call);
  }
  return launch_backward<64, 64, Wgmma<1>, 64, 2, Wgmma<2>, 64, 2>(stream, call);
}

}  // namespace rehearse::exec::cuda
