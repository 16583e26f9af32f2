// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, by mma.sync, for keys of up to 192 columns (attention_forward_192.cu).
#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

template <class T>
int fast_attention_backward_192(Stream stream, const BackwardCall<T>& call) {
  return launch_backward<192, 128, MmaSync<T, 1>, 16, 1, MmaSync<T, 1>, 32, 1>(stream, call);
}

template int fast_attention_backward_192(Stream, const BackwardCall<Bf16>&);
template int fast_attention_backward_192(Stream, const BackwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
