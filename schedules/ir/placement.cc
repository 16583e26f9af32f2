// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/placement.h"

namespace rehearse {

Placement loop_placement(std::int32_t positions, std::int32_t chunks) {
  Placement placement{.positions = positions};
  for (std::int32_t s = 0; s < positions * chunks; ++s) placement.down.push_back({s % positions});
  return placement;
}

Placement wave_placement(std::int32_t positions, std::int32_t chunks) {
  Placement placement{.positions = positions};
  for (std::int32_t s = 0; s < positions * chunks; ++s) {
    const std::int32_t r = s % positions;
    placement.down.push_back({s / positions % 2 == 0 ? r : positions - 1 - r});
  }
  return placement;
}

Placement v_placement(std::int32_t positions) {
  return wave_placement(positions, 2);
}

Placement mirrored(Placement down, std::int32_t first_up) {
  for (const Position& position : down.down) {
    down.up.push_back({down.positions - 1 - position.value});
  }
  down.first_up = first_up;
  return down;
}

Placement bidirectional_placement(std::int32_t positions, std::int32_t first_up) {
  return mirrored(loop_placement(positions, 1), first_up);
}

}  // namespace rehearse
