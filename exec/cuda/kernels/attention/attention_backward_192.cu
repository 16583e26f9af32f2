// SPDX-License-Identifier: Apache-2.0
// Flash attention, backward, by mma.sync, for keys of up to 192 columns (attention_forward_192.cu).
#include "exec/cuda/kernels/attention/attention_backward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

int fast_attention_backward_192(Stream stream, const BackwardCall<Bf16>& call) {
  return launch_backward<192, 128, MmaSync<1>, 16, 1, MmaSync<1>, 32, 1>(stream, call);
}

}  // namespace rehearse::exec::cuda
