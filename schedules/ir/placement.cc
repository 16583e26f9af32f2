// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/placement.h"

namespace rehearse {

Placement loop_placement(std::int32_t positions, std::int32_t chunks) {
  Placement placement{.positions = positions};
  for (std::int32_t s = 0; s < positions * chunks; ++s) placement.down.push_back({s % positions});
  return placement;
}

Placement v_placement(std::int32_t positions) {
  Placement placement{.positions = positions};
  for (std::int32_t s = 0; s < positions; ++s) placement.down.push_back({s});
  for (std::int32_t s = positions - 1; s >= 0; --s) placement.down.push_back({s});
  return placement;
}

Placement bidirectional_placement(std::int32_t positions, std::int32_t first_up) {
  Placement placement{.positions = positions, .first_up = first_up};
  for (std::int32_t s = 0; s < positions; ++s) {
    placement.down.push_back({s});
    placement.up.push_back({positions - 1 - s});
  }
  return placement;
}

}  // namespace rehearse
