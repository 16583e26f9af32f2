// SPDX-License-Identifier: Apache-2.0
// What kinds of work a step's time went into, from any trace: predicted, measured by us, or another
// profiler's.
//
// A prediction says what each kernel inside an op is; a measured trace of ours has ops as a whole;
// a foreign one has kernels, told by their names. A collective's measured time includes waiting for
// its last member: of ops that differ by rank and micro-batch alone, the shortest shows what it
// takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/trace/trace.h"

namespace rehearse {

// The work of one rank, as the mean over all ranks. Times [ns].
struct StepWork {
  double products = 0, attention = 0, memory_bound = 0;  // 0, all three: not told apart
  double computing = 0;                                  // these, or ops as a whole
  double collectives = 0, transfers = 0;  // collectives: hidden ones too, on their own stream

  bool has_kernels() const { return products > 0; }
};

StepWork step_work(const Trace& trace);

enum class KernelWork : std::uint8_t { Product, Attention, MemoryBound };
// By the names of cuBLAS (*gemm*, nvjet_*), CUTLASS, FlashAttention (flash_*), cuDNN (*sdpa*) and
// PyTorch's own (fmha_*); everything else is memory-bound.
KernelWork work_of_kernel(std::string_view name);

}  // namespace rehearse
