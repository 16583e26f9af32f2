// SPDX-License-Identifier: Apache-2.0
// Recomputation in bubbles: what a backward computes again needs no gradient, so a rank that waits
// for one may do it meanwhile, as an op of its own (R) directly before the backward. The
// zero-bubble scheduler has such an op too, which follows the forward of its chunk and takes as
// long (sail-sg/zero-bubble-pipeline-parallelism,
// megatron/core/pipeline_parallel/zerobubble/scheduler/ graph.py@528f4a4, passes.py@54b65fc). In
// 1F1B every position but the last hides R once on the way back: (p - 1) R less, of (m + p - 1) (F
// + R + I + W).
#pragma once

#include "schedules/timing/compute_timing.h"

namespace rehearse {

// The order with an R before every B or I whose gradient comes later than its rank is free; those
// of pairs, and those whose gradient is there, compute again by themselves: an R would gain them
// nothing and keep memory longer. In `times` no order takes longer by it. As it was where nothing
// is gained, where StageTimes::recompute is 0 of all, or where the order waits for itself.
// REQUIRES: a compute order (L0) without R.
Schedule place_recompute(const Schedule& order, const ComputeTimes& times);

}  // namespace rehearse
