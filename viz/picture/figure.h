// SPDX-License-Identifier: Apache-2.0
// A trace as one picture: title, legend with shares, time axis, a lane per rank, bubbles hatched
// by cause, labels where they fit. Pure: trace index + options -> scene.
#pragma once

#include "viz/picture/coloring.h"
#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

struct FigureOptions {
  Theme theme = Theme::Light;
  std::int32_t width = 1600;                  // [px]
  Nanoseconds begin{0}, end{0};               // equal: the whole step
  std::int32_t first_row = 0, last_row = -1;  // rows [first, last); -1: all
  bool memory = true;                         // curves under each row, where the trace has them
  ColorBy color_by = ColorBy::Kinds;
};

// REQUIRES: `index` is by kind.
Scene figure(const TraceIndex& index, const FigureOptions& options);

}  // namespace rehearse::viz
