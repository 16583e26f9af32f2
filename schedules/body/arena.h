// SPDX-License-Identifier: Apache-2.0
// Offsets for blocks with lifetimes in one arena: values of a rank, tensors of a body.
#pragma once

#include <span>
#include <vector>

#include "schedules/base/units.h"

namespace rehearse {

struct ArenaBlock {
  std::int64_t bytes = 0;           // > 0; rounded up to kAlignment
  std::int32_t begin = 0, end = 0;  // alive at times begin ... end, both included
};

struct ArenaPlan {
  std::vector<std::int64_t> offset;  // per block, multiples of kAlignment
  std::int64_t bytes = 0;            // of the arena
  std::int64_t live_peak = 0;        // largest sum of (rounded) bytes alive at one time
};

// Greedy by size: largest first (then earlier begin, then order given), each into the smallest gap
// between the placed blocks that are alive with it (the lowest of equal ones), else above them all.
// n blocks take about n log n: what is taken over any stretch of time is few spans (arena.cc).
// REQUIRES: begin <= end of every block.
// Known as "greedy by size" (Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020, section 4.3). Not optimal, but on training steps the peak mostly equals the
// largest live sum.
ArenaPlan plan_arena(std::span<const ArenaBlock> blocks);

}  // namespace rehearse
