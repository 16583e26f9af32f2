// SPDX-License-Identifier: Apache-2.0
// Recomputation in bubbles: what a backward computes again needs no gradient, so a rank that waits
// for one may do it meanwhile, as an op of its own (R) directly before the backward. Two forks of
// Megatron-LM have such an op: MindSpeed's --recompute-in-advance runs it while the gradient comes,
// before every backward but those of the last chunk (Ascend/MindSpeed
// mindspeed/core/pipeline_parallel/ripipe_schedules.py@14be092, recompute_next); the zero-bubble
// runtime performs nodes R of its scheduler (sail-sg/zero-bubble-pipeline-parallelism,
// megatron/core/pipeline_parallel/zerobubble/runtime.py@ed77fa7, schedule_r). In 1F1B every
// position but the last hides R once on the way back: (p - 1) R less, of (m + p - 1) (F + R + I +
// W).
#pragma once

#include <vector>

#include "schedules/timing/compute_timing.h"

namespace rehearse {

// How much an order may hold of what is computed again ahead of its backward.
struct RecomputeRoom {
  double most = 0;  // activations of stage-chunks (and slices) alive on a position; 0: any number
  // By stage, in activations: what an R leaves to I, and to W. Empty: not known, and no R has room
  // under a limit.
  struct Left {
    double input = 0, weight = 0;
  };
  std::vector<Left> left{};
};

// The order with an R before every B or I whose gradient comes later than its rank is free; those
// of pairs, and those whose gradient is there, compute again by themselves: an R would gain them
// nothing and keep memory longer. In `times` no order takes longer by it. Of those for which the
// position has no room, the earlier ones stay. As it was where nothing is gained, where
// StageTimes::recompute is 0 of all, or where the order waits for itself.
// REQUIRES: a compute order (L0) without R.
Schedule place_recompute(const Schedule& order, const ComputeTimes& times,
                         const RecomputeRoom& room = {});

}  // namespace rehearse
