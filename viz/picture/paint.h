// SPDX-License-Identifier: Apache-2.0
// Lane frames -> colours and shapes. What figure.cc and the window share.
#pragma once

#include "viz/picture/coloring.h"
#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

struct LanePlace {
  double x = 0, y = 0, height = 0;  // [px]; the width is the view's
};

// The bar along an op's lower edge, as long as its body waits for its own collectives.
Color in_body_color();

enum class Labels : std::uint8_t { None, Bubbles, All };  // All: of ops and bubbles

// Adds the lane's background, strip, boxes and labels to the scene. REQUIRES: `index` sums up time
// by the coloring's classes.
void paint_lane(const TraceIndex& index, const Coloring& coloring, const Frame& frame,
                const LaneFrame& lane, const LanePlace& place, Theme theme, Scene& scene,
                Labels labels = Labels::All);

// The longest name of an op that is at most `width` px wide and still true: "3F12", "F12", "12";
// without the stage only where its rank has no other one, or the colour says which.
std::string label_for(const Trace& trace, const Coloring& coloring, OpId op, double width);

}  // namespace rehearse::viz
