// SPDX-License-Identifier: Apache-2.0
// A row's memory and a link's load -> shapes, over the columns of the lanes above them. What
// figure.cc and the window share.
#pragma once

#include "viz/analysis/curves.h"
#include "viz/picture/layout.h"
#include "viz/picture/scene.h"

namespace rehearse::viz {

struct CurvePlace {
  double x = 0, y = 0, height = 0;  // [px]; the width is the view's
};

Color memory_color(std::size_t part);  // of Trace::memory_parts

// What the height of a memory curve stands for.
struct MemoryScale {
  double top = 1;           // [B] at the upper edge
  bool to_capacity = true;  // false: a row that needs less than a quarter of its device
};
MemoryScale memory_scale(const MemoryPeak& peak, std::int64_t capacity);

// The parts, stacked: of each column the moment at which their sum is greatest, so that a peak is
// seen at any zoom and the parts are of one moment. A mark stands at the row's peak, a line at the
// capacity where the scale reaches it.
void paint_memory(const Trace& trace, RankClass row, const MemoryCurve& curve, const Frame& frame,
                  const CurvePlace& place, Theme theme, Scene& scene);

// The mean of each column filled, the greatest load in it as a line.
void paint_link(const LinkCurve& curve, const Frame& frame, const CurvePlace& place, Theme theme,
                Scene& scene);

}  // namespace rehearse::viz
