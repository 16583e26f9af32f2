// SPDX-License-Identifier: Apache-2.0
// Flash attention, forward, by mma.sync, for keys of up to 192 columns: those of DeepSeek-V2's
// heads (128 and 64 rotary ones, values of 128).
#include "exec/cuda/kernels/attention/attention_forward.cuh"
#include "exec/cuda/kernels/attention/attention_mma.cuh"

namespace rehearse::exec::cuda {

template <class T>
int fast_attention_192(Stream stream, const ForwardCall<T>& call) {
  return launch_forward<MmaSync<T, 2>, 192, 128, 32, 1>(stream, call);
}

template int fast_attention_192(Stream, const ForwardCall<Bf16>&);
template int fast_attention_192(Stream, const ForwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
