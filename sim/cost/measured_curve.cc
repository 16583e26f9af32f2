// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/measured_curve.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rehearse::sim {

Bracket bracket(std::span<const std::int64_t> axis, std::int64_t x) {
  const auto log_of = [](std::int64_t y) { return std::log(static_cast<double>(y)); };
  if (x <= axis.front()) return {axis.front(), axis.front(), 0, x < axis.front()};
  if (x >= axis.back()) return {axis.back(), axis.back(), 0, x > axis.back()};
  const auto above = std::ranges::lower_bound(axis, x);
  if (*above == x) return {x, x, 0, false};
  const std::int64_t low = *(above - 1);
  return {low, *above, (log_of(x) - log_of(low)) / (log_of(*above) - log_of(low)), false};
}

std::optional<CurveTime> read_curve(std::span<const std::int64_t> bytes,
                                    std::span<const double> time_us, std::int64_t at) {
  if (bytes.empty()) return std::nullopt;
  if (at < bytes.front()) return CurveTime{time_us.front() * 1e-6, CostLevel::Formula};
  if (at > bytes.back()) {
    const double ratio = static_cast<double>(at) / static_cast<double>(bytes.back());
    return CurveTime{time_us.back() * ratio * 1e-6, CostLevel::Formula};
  }
  std::size_t i = 0;
  while (bytes[i] < at) ++i;
  if (bytes[i] == at) return CurveTime{time_us[i] * 1e-6, CostLevel::Measured};
  const double low = std::log(static_cast<double>(bytes[i - 1]));
  const double high = std::log(static_cast<double>(bytes[i]));
  const double share = (std::log(static_cast<double>(at)) - low) / (high - low);
  const double log_time = std::log(time_us[i - 1]) * (1 - share) + std::log(time_us[i]) * share;
  return CurveTime{std::exp(log_time) * 1e-6, CostLevel::Interpolated};
}

std::optional<CollectiveOp> table_of(OpKind kind) {
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
      return std::nullopt;
  }
}

std::optional<CurveTime> read_collectives(std::span<const CollectivePoint> points, CollectiveOp op,
                                          std::int32_t ranks, std::int32_t nodes, std::int64_t at,
                                          ProcessLink between, bool apart) {
  std::vector<std::int64_t> bytes;
  std::vector<double> time_us;
  for (const CollectivePoint& point : points) {
    if (point.op != op || point.ranks != ranks || point.nodes != nodes) continue;
    if (point.between_processes != between || point.apart != apart) continue;
    if (!bytes.empty() && point.bytes == bytes.back()) continue;  // a size twice: the first
    bytes.push_back(point.bytes);
    time_us.push_back(point.time_us);
  }
  return read_curve(bytes, time_us, at);
}

}  // namespace rehearse::sim
