// SPDX-License-Identifier: Apache-2.0
#include "sim/network/shared_memory_cost.h"

#include <cmath>
#include <cstdlib>

#include "sim/cost/worker_sharing.h"

namespace rehearse::sim {
namespace {

// At the number of ranks nearest to `asked` that was measured.
std::optional<CurveTime> nearest_time(std::span<const CollectivePoint> points, CollectiveOp op,
                                      std::int32_t asked, Bytes bytes, ProcessLink between,
                                      bool apart) {
  std::int32_t nearest = 0;
  for (const CollectivePoint& point : points) {
    if (point.op != op || point.nodes != 1 || point.between_processes != between) continue;
    if (point.apart != apart) continue;
    if (nearest == 0 || std::abs(point.ranks - asked) < std::abs(nearest - asked)) {
      nearest = point.ranks;
    }
  }
  if (nearest == 0 && apart) return nearest_time(points, op, asked, bytes, between, false);
  if (nearest == 0) return std::nullopt;
  std::optional<CurveTime> time =
      read_collectives(points, op, nearest, 1, bytes.value, between, apart);
  if (time && nearest != asked) {
    time->seconds *= static_cast<double>(asked) / nearest;
    time->level = CostLevel::Formula;
  }
  return time;
}

// What every member brings goes to who sums it, or to its own receiver; else a process's part goes
// once, however many members it has.
bool sends_for_each_member(CollectiveOp op) {
  return op == CollectiveOp::AllReduce || op == CollectiveOp::ReduceScatter ||
         op == CollectiveOp::Reduce || op == CollectiveOp::AllToAll;
}

// Measured with one rank per process, from the call until all are awake again.
std::optional<CurveTime> among_processes(CollectiveOp op, Bytes bytes, Meeting meeting,
                                         std::span<const CollectivePoint> points,
                                         const Cluster& cluster) {
  const std::int32_t asked = op == CollectiveOp::SendRecv ? 2 : meeting.processes;
  auto time = nearest_time(points, op, asked, bytes, cluster.between_processes, meeting.apart);
  if (!time) time = nearest_time(points, op, asked, bytes, ProcessLink::Tcp, meeting.apart);
  if (time && meeting.ranks > meeting.processes && sends_for_each_member(op)) {
    time->seconds *= static_cast<double>(meeting.ranks) / meeting.processes;
    time->level = CostLevel::Formula;
  }
  return time;
}

}  // namespace

std::optional<CurveTime> shared_memory_time(OpKind kind, Bytes bytes, Meeting meeting,
                                            std::span<const CollectivePoint> points,
                                            const Cluster& cluster) {
  // Gather and Scatter copy every part once, as a transfer of the whole does.
  const CollectiveOp op = table_of(kind).value_or(CollectiveOp::SendRecv);
  const bool sends = op == CollectiveOp::SendRecv;
  if (meeting.processes > 1) {
    if (const auto time = among_processes(op, bytes, meeting, points, cluster)) return time;
  }
  std::optional<CurveTime> time =
      nearest_time(points, op, sends ? 2 : meeting.ranks, bytes, ProcessLink::None, meeting.apart);
  if (!time) return std::nullopt;
  const WorkerSharing sharing = worker_sharing(cluster);
  const std::int64_t waking = sends ? sharing.handover_ns : sharing.meeting_ns;
  time->seconds += static_cast<double>(waking) * 1e-9;
  return time;
}

}  // namespace rehearse::sim
