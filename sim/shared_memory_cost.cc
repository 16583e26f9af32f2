#include "sim/shared_memory_cost.h"

#include <cmath>
#include <cstdlib>

#include "sim/worker_sharing.h"

namespace rehearse::sim {
namespace {

// Gather and Scatter copy every part once, as a transfer of the whole does.
CollectiveOp table_of(OpKind kind) {
  switch (kind) {
    case OpKind::AllReduce:
      return CollectiveOp::AllReduce;
    case OpKind::AllGather:
    case OpKind::Unshard:
      return CollectiveOp::AllGather;
    case OpKind::ReduceScatter:
      return CollectiveOp::ReduceScatter;
    case OpKind::AllToAll:
      return CollectiveOp::AllToAll;
    case OpKind::Broadcast:
      return CollectiveOp::Broadcast;
    case OpKind::Reduce:
      return CollectiveOp::Reduce;
    default:
      return CollectiveOp::SendRecv;
  }
}

}  // namespace

std::optional<CurveTime> shared_memory_time(OpKind kind, Bytes bytes, std::int32_t ranks,
                                            std::span<const CollectivePoint> points,
                                            const Cluster& cluster) {
  const CollectiveOp op = table_of(kind);
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
