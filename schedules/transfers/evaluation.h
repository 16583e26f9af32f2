// SPDX-License-Identifier: Apache-2.0
// An order with its transfers, proved and timed: what `rehearse schedule` reports and the planner
// compares.
#pragma once

#include "schedules/proof/deadlock.h"
#include "schedules/timing/metrics.h"
#include "schedules/transfers/add_transfers.h"

namespace rehearse {

struct Evaluation {
  Schedule full;        // the order with its transfers (L1 without a model)
  DeadlockProof proof;  // of `full`, one in-order transfer stream per rank
  bool deadlock_free = false;
  ComputeTiming timing;  // per op of the compute order; empty where it hangs
  ScheduleMetrics metrics;
};

// Times with the transfers in the order that the policy gives them, each taking times.transfer on
// both of its ends. Errors: the compute order waits for itself.
Result<Evaluation> evaluate(const Schedule& order, const ComputeTimes& times,
                            TransferPolicy policy = TransferPolicy::TimeSorted);

}  // namespace rehearse
