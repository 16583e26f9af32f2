// SPDX-License-Identifier: Apache-2.0
// Collectives and transfers among a CPU's ranks. In one process they are threads: whoever comes
// last moves the data of all. In several, each process moves what its ranks bring, by memory or
// TCP. Read from the machine's own tables; no links, so no demands but the worker's.
#pragma once

#include <optional>
#include <span>

#include "schedules/base/units.h"
#include "schedules/ir/op.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/measured_curve.h"

namespace rehearse::sim {

// Members of an exchange, in how many processes they are, and whether a sum lies beside what was
// summed, which writes memory that nobody had read.
struct Meeting {
  std::int32_t ranks = 2, processes = 1;
  bool apart = false;
};

// One exchange of `bytes` (counted as collective_cost.h does; Send: the message), from the last
// one's arrival until all go on. A number of ranks or processes that was not measured: the nearest
// one's time, in proportion; several processes where only one was measured: as in that one; sums
// beside what was summed that were not measured: as over it. Empty:
// nothing of the kind was measured. REQUIRES: cluster.workers > 0; `points` sorted by (op, nodes,
// ranks, bytes).
std::optional<CurveTime> shared_memory_time(OpKind kind, Bytes bytes, Meeting meeting,
                                            std::span<const CollectivePoint> points,
                                            const Cluster& cluster);

}  // namespace rehearse::sim
