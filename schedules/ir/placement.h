// SPDX-License-Identifier: Apache-2.0
// Which position of the pipeline holds a stage. Stages count model chunks, 0 ... stages-1.
#pragma once

#include <vector>

#include "schedules/base/units.h"

namespace rehearse {

// loop: stage s on s mod p. wave: forth and back; V: once (2p stages). bidirectional: micro-batches
// from `first_up` on run stage s on position p-1-s instead of s (Chimera, DualPipe; of a V BitPipe).
// Arbitrary maps (somebody's own schedule) are given as the list itself.
struct Placement {
  std::int32_t positions = 1;
  std::vector<Position> down;  // per stage: where it runs for micro-batches below first_up
  std::vector<Position> up;    // per stage for the others; empty: one placement for all
  std::int32_t first_up = 0;   // first micro-batch that runs upward; used where `up` is not empty

  std::int32_t stages() const { return static_cast<std::int32_t>(down.size()); }
  Position position(Stage stage, Microbatch microbatch) const {
    return (up.empty() || microbatch.value < first_up ? down : up)[stage.index()];
  }
  bool operator==(const Placement&) const = default;
};

Placement loop_placement(std::int32_t positions, std::int32_t chunks);
// Zigzag: every second chunk back again, so that neighbours at a turn share a position.
Placement wave_placement(std::int32_t positions, std::int32_t chunks);
Placement v_placement(std::int32_t positions);  // the wave of two chunks
// The placement and its mirror image: stage s of micro-batches from `first_up` on lies at the
// opposite position.
Placement mirrored(Placement down, std::int32_t first_up);
Placement bidirectional_placement(std::int32_t positions, std::int32_t first_up);

}  // namespace rehearse
