// SPDX-License-Identifier: Apache-2.0
// Times of one operation at several sizes, read between the points.
#pragma once

#include <optional>
#include <span>

#include "schedules/ir/op.h"
#include "sim/cluster/calibration.h"
#include "sim/cost/cost.h"

namespace rehearse::sim {

struct CurveTime {
  double seconds = 0;
  CostLevel level = CostLevel::Interpolated;  // Measured at a point, Formula outside the points
};

// Where x stands on an axis: the points below and above, and the share of the upper one in ln x.
struct Bracket {
  std::int64_t below = 1, above = 1;
  double share = 0;
  bool outside = false;
};
// REQUIRES: axis ascending, not empty.
Bracket bracket(std::span<const std::int64_t> axis, std::int64_t x);

// Straight lines in log(time) over log(bytes); below the smallest size its time, above the largest
// its bandwidth. `bytes` ascending; the arrays have equal length. Empty without points.
std::optional<CurveTime> read_curve(std::span<const std::int64_t> bytes,
                                    std::span<const double> time_us, std::int64_t at);

// Whose points tell the time of `kind`; empty: none do.
std::optional<CollectiveOp> table_of(OpKind kind);

// The points of one operation and group. REQUIRES: sorted by (op, nodes, ranks, bytes).
std::optional<CurveTime> read_collectives(std::span<const CollectivePoint> points, CollectiveOp op,
                                          std::int32_t ranks, std::int32_t nodes, std::int64_t at,
                                          ProcessLink between = ProcessLink::None,
                                          bool apart = false);

}  // namespace rehearse::sim
