// SPDX-License-Identifier: Apache-2.0
// Flash attention by wgmma for keys of up to 192 columns (attention_forward_192.cu). Compiled for
// sm_90a alone.
#include "exec/cuda/kernels/attention/attention_wgmma.cuh"

#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_forward.cuh"

namespace rehearse::exec::cuda {

int wgmma_attention_192(Stream stream, const ForwardCall<Bf16>& call) {
  return launch_forward<Wgmma<2>, 192, 128, 128, 1>(stream, call);
}

int wgmma_attention_backward_192(Stream stream, const BackwardCall<Bf16>& call) {
  return launch_backward<192, 128, Wgmma<1>, 32, 2, Wgmma<2>, 64, 1>(stream, call);
}

}  // namespace rehearse::exec::cuda
