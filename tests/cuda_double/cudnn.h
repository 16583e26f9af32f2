// SPDX-License-Identifier: Apache-2.0
// A DOUBLE of the part of cuDNN that exec/cuda/cudnn calls, compiled against the real headers: it
// keeps descriptors, and computes an operation graph as it is described, one operation after
// another, in fp32, on the host. It refuses what cuDNN's support matrix does (NVIDIA cuDNN,
// "Attention": heads, types, strides) and graphs that do not hang together. It knows nothing of
// cuDNN's patterns: the real library is asked for those (tests/cuda/cudnn_graphs_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace rehearse::cuda_double {

// None is installed at first; 90000 and more: this version is.
void install_cudnn(std::size_t version);

enum class CudnnFault : std::uint8_t {
  None,
  NoEngine,   // the heuristics name none
  Unordered,  // its engines sum in no fixed order
  NoPlan,     // no plan can be made
  Execution,  // plans do not run
};
void break_cudnn(CudnnFault fault);

// Plans that were made and runs of plans, since they were last asked for.
struct CudnnCounts {
  std::int64_t plans = 0, runs = 0;
};
CudnnCounts take_cudnn();

}  // namespace rehearse::cuda_double
