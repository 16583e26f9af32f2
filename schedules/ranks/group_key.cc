// SPDX-License-Identifier: Apache-2.0
#include "schedules/ranks/group_key.h"

#include <algorithm>

namespace rehearse {

std::array<std::int32_t, 3> group_key(std::string_view group, const Coordinates& at,
                                      const Plan& plan, const Placement& placement) {
  const std::int32_t replica = at.data * plan.context_parallel + at.context;
  if (group == "tp") return {replica, at.pipeline, 0};
  if (group == "cp") return {at.tensor, at.data, at.pipeline};
  if (group == "dp") return {at.tensor, at.pipeline, 0};
  if (group == "world") return {0, 0, 0};
  if (group == "embed") {
    const Position here{at.pipeline};
    const bool end = here == placement.down.front() || here == placement.down.back();
    return end ? std::array{at.tensor, replica, 0} : std::array{-1, 0, 0};
  }
  if (group == "mirror") {
    return {at.tensor, replica, std::min(at.pipeline, placement.positions - 1 - at.pipeline)};
  }
  return {-1, 0, 0};  // pp: transfers
}

}  // namespace rehearse
