// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks: rank = mixed radix of the coordinates in the plan's rank_order.
#pragma once

#include <array>
#include <vector>

#include "schedules/scenario/plan.h"

namespace rehearse {

// Coordinates on tp, cp, dp, pp. The expert axis is a view inside cp x dp and has none of its own.
struct Coordinates {
  std::int32_t tensor = 0, context = 0, data = 0, pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

class Mesh {
 public:
  explicit Mesh(const Plan& plan);
  std::int32_t ranks() const;
  Rank rank(const Coordinates& at) const;
  Coordinates coordinates(Rank rank) const;
  std::int32_t stride(Axis axis) const;  // distance in ranks between neighbours on the axis
  std::int32_t size(Axis axis) const;
  // Members of the group along `axis` that holds `rank`, by coordinate.
  std::vector<Rank> group(Axis axis, Rank rank) const;

 private:
  std::array<std::int32_t, 5> size_{1, 1, 1, 1, 1}, stride_{1, 1, 1, 1, 1};
};

}  // namespace rehearse
