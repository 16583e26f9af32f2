// Collectives and transfers among ranks that are threads of one process: whoever comes last moves
// the data of all. Read from the machine's own tables; no links, so no demands but the worker's.
#pragma once

#include <optional>
#include <span>

#include "schedules/op.h"
#include "schedules/units.h"
#include "sim/cluster.h"
#include "sim/measured_curve.h"

namespace rehearse::sim {

// One exchange of `bytes` (counted as collective_cost.h does; Send: the message) among `ranks`,
// from the last one's arrival until all go on. A number of ranks that was not measured: the nearest
// one's time, in proportion. Empty: nothing of the kind was measured. REQUIRES: cluster.workers >
// 0; `points` sorted by (op, nodes, ranks, bytes).
std::optional<CurveTime> shared_memory_time(OpKind kind, Bytes bytes, std::int32_t ranks,
                                            std::span<const CollectivePoint> points,
                                            const Cluster& cluster);

}  // namespace rehearse::sim
