// SPDX-License-Identifier: Apache-2.0
// A CPU whose ranks are performed by a few threads: what sharing it costs, and how much of it an op
// keeps busy.
//
// The event engine sees one resource, the workers. An op that runs on every one of `ranks` threads
// at once demands ranks / workers of it: two ranks on two cores run side by side, four on two at
// half speed. (The executor's workers take whole ops in turn instead; over a step the work is the
// same.) Threads that compute together are slower each than one alone: a scalar per class,
// measured.
#pragma once

#include <cstdint>

#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"

namespace rehearse::sim {

struct WorkerSharing {
  std::int32_t workers = 0;  // 0: every rank has a device of its own
  // Time while all workers compute over time alone, >= 1.
  double matrix_products = 1, attention = 1, memory_bound = 1;
  std::int64_t op_ns = 0;  // what the scheduler takes per op
  std::int64_t meeting_ns =
      0;  // from the last member's arrival until all go on, beyond the exchange
  std::int64_t handover_ns = 0;  // the same of a transfer
};

// The sharing of a cluster with `workers`; its calibration's scalars "workers.matrix_products",
// "workers.attention", "workers.memory_bound", "workers.meeting_us", "workers.handover_us", and
// launch_us. All else: no sharing. With more places for ranks than workers (with_places) nobody is
// woken: meetings and hand-overs cost nothing beyond the exchange.
WorkerSharing worker_sharing(const Cluster& cluster);

// How an op uses the workers while it runs: its time with as many as there are, and its demand.
struct WorkerUse {
  std::int64_t computing_ns = 0, exchanging_ns = 0;  // alone; together the op's time
  double share = 0;                                  // of all workers, in (0, 1]
};
// `computing` [ns] on each of `ranks` threads at once, which takes `shared` times as long
// (WorkerSharing) when all workers compute; `exchanging` [ns] on one thread for each of `groups`
// groups of ranks.
WorkerUse worker_use(const WorkerSharing& sharing, std::int64_t computing, double shared,
                     std::int32_t ranks, std::int64_t exchanging, std::int32_t groups);

}  // namespace rehearse::sim
