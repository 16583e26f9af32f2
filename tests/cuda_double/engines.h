// SPDX-License-Identifier: Apache-2.0
// Which engine of attention runs on the double, and which is faster there.
#pragma once

#include <cstdint>

#include "exec/cuda/calls/kernels.h"

namespace rehearse::cuda_double {

// From now on this engine is the faster one, by the streams' clocks, in what this thread issues.
void prefer(exec::cuda::AttentionEngine engine);
// Is another one preferred, by this thread?
bool slower(exec::cuda::AttentionEngine engine);

// Since they were last asked for: launches by engine, trials among them; and results of two engines
// that were compared.
struct EngineCounts {
  std::int64_t mma = 0, wgmma = 0, compared = 0;
};
EngineCounts take_engines();

}  // namespace rehearse::cuda_double
