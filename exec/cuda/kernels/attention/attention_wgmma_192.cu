// SPDX-License-Identifier: Apache-2.0
// Flash attention by wgmma for keys of up to 192 columns (attention_forward_192.cu). Compiled for
// sm_90a alone.
#include "exec/cuda/kernels/attention/attention_wgmma.cuh"

#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_forward.cuh"

namespace rehearse::exec::cuda {

template <class T>
int wgmma_attention_192(Stream stream, const ForwardCall<T>& call) {
  return launch_forward<Wgmma<T, 2>, 192, 128, 128, 1>(stream, call);
}

template <class T>
int wgmma_attention_backward_192(Stream stream, const BackwardCall<T>& call) {
  return launch_backward<192, 128, Wgmma<T, 1>, 32, 2, Wgmma<T, 2>, 64, 1>(stream, call);
}

template int wgmma_attention_192(Stream, const ForwardCall<Bf16>&);
template int wgmma_attention_192(Stream, const ForwardCall<Fp16>&);
template int wgmma_attention_backward_192(Stream, const BackwardCall<Bf16>&);
template int wgmma_attention_backward_192(Stream, const BackwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
