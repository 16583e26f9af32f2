// SPDX-License-Identifier: Apache-2.0
// The event engine: performs a program on shared resources, event by event.
//
// Everything that runs is a flow with a rate <= 1. Flows that demand the same resources get max-min
// fair rates (max_min.h); compute slows while communication runs on its row; a compute op whose
// body communicates carries those links in its own demand. Events are totally ordered by (time,
// priority, sequence) and times are integers, so equal input gives equal bytes. At equal times
// everything that ends, ends before rates are shared anew. It reads no clock and no random device:
// jitter is a function of seed, row and op, so it does not depend on the order of events either.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/base/result.h"
#include "sim/cost/cost.h"
#include "sim/engine/program.h"
#include "sim/engine/timeline.h"

namespace rehearse::sim {

struct EngineOptions {
  // Factor on the time of everything that computes on a row (1.05: 5 % slower), but for what a body
  // waits for its own collectives; empty: 1 for all.
  std::vector<double> row_factor;
  // Share of what the factor adds in which the mean rank of the row waits, inside the op, for the
  // slowest of those that compute it together; empty: 0 for all.
  std::vector<double> row_waits;
  // Relative spread of compute times, per row (fixed for the step) and per op. Approximately normal
  // (sum of 12 uniforms, so exact on every machine), cut at 0.5 and 2.
  double row_sigma = 0, op_sigma = 0;
  std::int32_t op_draws = 1;  // ranks that compute an op together: the slowest of them counts
  std::uint64_t seed = 0;
  bool share = true;         // false: demands are ignored
  bool slow = true;          // false: slowdowns are ignored
  bool record_load = false;  // fill Timeline::load
};

// True if the sweep would not do: something is shared or slowed.
bool needs_events(const CostTable& costs);

// A node takes the longest time of its members. Its demand is that of its members: ops of one
// cost count once, and a resource that several costs name counts with the largest share.
// REQUIRES: costs.of_op has one entry per op; every demand's resource is < costs.num_resources.
// Error: the deadlock, as Program says it.
Result<Timeline> simulate(const Program& program, const CostTable& costs,
                          const EngineOptions& options = {});

}  // namespace rehearse::sim
