// SPDX-License-Identifier: Apache-2.0
// The last step of a run as a trace: every rank's ops with its own times.
#pragma once

#include <span>

#include "schedules/scenario/scenario.h"
#include "schedules/trace/trace.h"

namespace rehearse::cli {

// A longer step's trace holds the first rank of each class of equal ranks, and its caption says
// so: some 100 B per op make it 2 GB.
inline constexpr std::int64_t kMostOpsOfRanks = std::int64_t{1} << 24;

// With why compute streams were idle, and the bytes alive as ops were issued; the schedule's hash
// is that of the prediction, so that the two compare. REQUIRES: the schedule was lowered for the
// scenario's plan; start and end are as Interpreter::start() has them, of all ranks.
Trace step_trace(const Scenario& scenario, const Schedule& schedule,
                 std::span<const Nanoseconds> start, std::span<const Nanoseconds> end,
                 std::string caption, std::int64_t most_ops = kMostOpsOfRanks);

// A prediction whose replicas differ, with a row for every rank as a measurement has, so that the
// two compare; one of more than kMostOpsOfRanks as it is. REQUIRES: the trace is of the schedule,
// which was lowered for `plan` and split (Prediction::row_class).
Trace of_every_rank(Trace predicted, const Schedule& schedule, const Plan& plan);

}  // namespace rehearse::cli
