// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/two/paint_lag.h"

#include <algorithm>
#include <cstdlib>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {

Color lag_color(bool behind) {
  return behind ? Color{213, 94, 0} : Color{0, 114, 178};
}

std::string lag_text(std::int64_t ns) {
  return ns == 0 ? "0" : (ns > 0 ? "+" : "") + time_text(ns);
}

std::int64_t lag_top(std::int64_t greatest) {
  return nice_step(static_cast<double>(std::max<std::int64_t>(1, greatest)));
}

void paint_lag(const LagCurve& curve, const View& view, std::span<const std::int64_t> edges,
               const LagPlace& place, Theme theme, Scene& scene) {
  const Palette& colors = palette(theme);
  const double middle = place.y + place.height / 2, half = place.height / 2 - 1;
  scene.plates.push_back({.x = place.x,
                          .y = place.y,
                          .width = static_cast<double>(view.width_px),
                          .height = place.height,
                          .fill = colors.lane});
  for (const bool behind : {true, false}) {
    Area area{.base = static_cast<float>(middle), .fill = lag_color(behind)};
    bool any = false;
    for (std::size_t c = 0; c + 1 < edges.size(); ++c) {
      const LagCurve::Range range = curve.over(edges[c], edges[c + 1]);
      const std::int64_t lag = !range.known ? 0
                               : behind     ? std::max<std::int64_t>(0, range.most + place.shift)
                                            : std::min<std::int64_t>(0, range.least + place.shift);
      const double share = std::clamp(
          static_cast<double>(lag) / static_cast<double>(place.top), -1.0, 1.0);
      any = any || lag != 0;
      area.x.push_back(static_cast<float>(place.x + view.x_of(edges[c])));
      area.y.push_back(static_cast<float>(middle - share * half));
    }
    area.end = static_cast<float>(place.x + view.x_of(edges.back()));
    if (any) scene.areas.push_back(std::move(area));
  }
  scene.lines.push_back({.x1 = place.x,
                         .y1 = middle,
                         .x2 = place.x + view.width_px,
                         .y2 = middle,
                         .width = 1,
                         .color = colors.faint_text,
                         .alpha = 130});
}

}  // namespace rehearse::viz
