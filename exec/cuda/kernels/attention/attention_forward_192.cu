// SPDX-License-Identifier: Apache-2.0
// Flash attention, forward, by mma.sync, for keys of up to 192 columns: those of DeepSeek-V2's
// heads (128 and 64 rotary ones, values of 128).
#include "exec/cuda/kernels/attention/attention_forward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

int fast_attention_192(Stream stream, const ForwardCall<Bf16>& call) {
  return launch_forward<MmaSync<2>, 192, 128, 32, 1>(stream, call);
}

}  // namespace rehearse::exec::cuda
