#include "sim/shared_memory_cost.h"

#include <cmath>
#include <cstdlib>

#include "sim/worker_sharing.h"

namespace rehearse::sim {
std::optional<CurveTime> shared_memory_time(OpKind kind, Bytes bytes, std::int32_t ranks,
                                            std::span<const CollectivePoint> points,
                                            const Cluster& cluster) {
  // Gather and Scatter copy every part once, as a transfer of the whole does.
  const CollectiveOp op = table_of(kind).value_or(CollectiveOp::SendRecv);
  const std::int32_t asked = op == CollectiveOp::SendRecv ? 2 : ranks;
  std::int32_t nearest = 0;
  for (const CollectivePoint& point : points) {
    if (point.op != op || point.nodes != 1) continue;
    if (nearest == 0 || std::abs(point.ranks - asked) < std::abs(nearest - asked)) {
      nearest = point.ranks;
    }
  }
  if (nearest == 0) return std::nullopt;
  std::optional<CurveTime> time = read_collectives(points, op, nearest, 1, bytes.value);
  if (!time) return std::nullopt;
  if (nearest != asked) {
    time->seconds *= static_cast<double>(asked) / nearest;
    time->level = CostLevel::Formula;
  }
  const WorkerSharing sharing = worker_sharing(cluster);
  const std::int64_t waking =
      op == CollectiveOp::SendRecv ? sharing.handover_ns : sharing.meeting_ns;
  time->seconds += static_cast<double>(waking) * 1e-9;
  return time;
}

}  // namespace rehearse::sim
