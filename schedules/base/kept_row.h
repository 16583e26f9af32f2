// SPDX-License-Identifier: Apache-2.0
// How long a row of logits may be to be read once: the loss on a GPU keeps it in shared memory.
#pragma once

#include <cstdint>

namespace rehearse {

// [B] 99 KiB, what a block may have on every GPU since sm_80 (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"), less what the sums over the block take.
inline constexpr std::int64_t kKeptRowBytes = (99 << 10) - 512;

}  // namespace rehearse
