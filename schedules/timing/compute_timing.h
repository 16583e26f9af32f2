// SPDX-License-Identifier: Apache-2.0
// When each op of a compute order runs, if every position runs its ops in order and as soon as it
// can (in-order ASAP). No contention: a transfer takes a constant time; who meets, waits, for none.
//
// This is the clock of the oracle table (docs/schedules.md), of the planner, and of the estimates
// that passes take. Times are integers in any unit ("ticks"), so that equal orders time equally.
#pragma once

#include <span>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

// What one pipeline position spends on one micro-batch, all chunks that it visits there together
// (`--times`): F, I, W, one transfer, and an overlapped pair. B = I + W.
struct PositionTimes {
  Nanoseconds forward{12}, input_gradient{12}, weight_gradient{12};
  Nanoseconds transfer{0};
  Nanoseconds pair{-1};  // FB; -1: F + B
  bool operator==(const PositionTimes&) const = default;
};

// What one op of one stage takes.
struct StageTimes {
  Nanoseconds forward{1}, input_gradient{1}, weight_gradient{1};
  Nanoseconds backward{2};  // fused; I + W where a model says nothing better
  // What an R takes out of input_gradient and of backward. 0: nobody says, then an R takes
  // as long as the forward, and its backward the whole.
  Nanoseconds recompute{0};
  bool operator==(const StageTimes&) const = default;
};

struct ComputeTimes {
  std::vector<StageTimes> stages{StageTimes{}};  // per stage, or one entry for all
  Nanoseconds transfer{0};  // from the end of F, B or I to where a stage on another position has it
  Nanoseconds pair{-1};     // an OVERLAP op; -1: the sum of its children

  const StageTimes& of(Stage stage) const { return stages[stages.size() == 1 ? 0 : stage.index()]; }
};

// Times of one of the `chunks` stage-chunks (times `slices` slices) that a micro-batch visits on a
// position. Exact where chunks * slices divides the position's times; else rounded down.
ComputeTimes divide(const PositionTimes& position, std::int32_t chunks, std::int32_t slices = 1);

struct ComputeTiming {
  std::vector<Nanoseconds> start, end;  // per op of the schedule; an OVERLAP op is one op
  Nanoseconds makespan{0};              // end of the last op; the first starts at 0
};

// `placed`: of the schedule.
Nanoseconds duration_of(const Schedule& schedule, const PlacedRecompute& placed, const Op& op,
                        const ComputeTimes& times);

// REQUIRES: compute ops and exchanges of own groups, whose stages the placement knows (L0).
// Errors: an op that can never start (its order waits for itself across positions, or its producer
// is missing); the message names the op at which each stuck position stands.
Result<ComputeTiming> time_compute(const Schedule& schedule, const ComputeTimes& times);

}  // namespace rehearse
