// SPDX-License-Identifier: Apache-2.0
// Lane frames -> colours and shapes. What figure.cc and the window share.
#pragma once

#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

struct LanePlace {
  double x = 0, y = 0, height = 0;  // [px]; the width is the view's
};

// The bar along an op's lower edge, as long as its body waits for its own collectives.
Color in_body_color();

// Adds the lane's background, strip, boxes and labels to the scene. `op_labels`: names of ops.
void paint_lane(const TraceIndex& index, const Frame& frame, const LaneFrame& lane,
                const LanePlace& place, Theme theme, Scene& scene, bool op_labels = true);

}  // namespace rehearse::viz
