// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/paint_curves.h"

#include <algorithm>
#include <array>

namespace rehearse::viz {
namespace {

// In the order of Trace::memory_parts (Okabe and Ito's).
constexpr std::array<Color, 8> kMemoryColors{{{0, 114, 178},
                                              {213, 94, 0},
                                              {240, 228, 66},
                                              {0, 158, 115},
                                              {204, 121, 167},
                                              {86, 180, 233},
                                              {153, 153, 153},
                                              {230, 159, 0}}};

void plate(const Frame& frame, const CurvePlace& place, Theme theme, Scene& scene) {
  scene.plates.push_back({.x = place.x,
                          .y = place.y,
                          .width = static_cast<double>(frame.view.width_px),
                          .height = place.height,
                          .fill = palette(theme).lane});
}

double edge_x(const Frame& frame, const CurvePlace& place, std::size_t column) {
  return place.x + frame.view.x_of(frame.edges[column]);
}

}  // namespace

Color memory_color(std::size_t part) {
  return kMemoryColors[part % kMemoryColors.size()];
}

MemoryScale memory_scale(const MemoryPeak& peak, std::int64_t capacity) {
  const bool to_capacity = capacity > 0 && peak.bytes >= capacity / 4;
  return {.top = std::max({to_capacity ? static_cast<double>(capacity) : 0.0,
                           1.1 * static_cast<double>(peak.bytes), 1.0}),
          .to_capacity = to_capacity};
}

void paint_memory(const Trace& trace, RankClass row, const MemoryCurve& curve, const Frame& frame,
                  const CurvePlace& place, Theme theme, Scene& scene) {
  plate(frame, place, theme, scene);
  if (curve.empty()) return;
  const std::size_t parts = trace.memory_parts.size();
  const std::int64_t capacity = trace.rows[row.index()].capacity_bytes;
  const MemoryScale scale = memory_scale(curve.peak(), capacity);
  const double base = place.y + place.height, pixels = place.height / scale.top;
  const double width = frame.view.width_px;
  std::vector<Area> areas(parts);
  for (std::size_t part = 0; part < parts; ++part) {
    areas[part].base = static_cast<float>(base);
    areas[part].end =
        static_cast<float>(place.x + std::min(width, frame.view.x_of(trace.end.value)));
    areas[part].fill = memory_color(part);
    areas[part].x.reserve(frame.num_columns());
    areas[part].y.reserve(frame.num_columns());
  }
  const std::vector<std::int64_t> samples = curve.greatest(frame.edges);
  std::int64_t before = -1;
  const std::int64_t* const bytes = trace.memory_bytes.view().data();
  constexpr std::size_t kAhead = 12;  // columns; each reads elsewhere
  for (std::size_t column = 0; column < frame.num_columns(); ++column) {
    if (frame.edges[column] >= trace.end.value) break;
    if (column + kAhead < samples.size() && samples[column + kAhead] >= 0) {
      __builtin_prefetch(bytes + samples[column + kAhead] * static_cast<std::int64_t>(parts));
    }
    const std::int64_t sample = samples[column];
    if (sample < 0 || sample == before) continue;
    before = sample;
    const auto x = static_cast<float>(edge_x(frame, place, column));
    double sum = 0;
    for (std::size_t part = 0; part < parts; ++part) {
      sum +=
          static_cast<double>(trace.memory_bytes[static_cast<std::size_t>(sample) * parts + part]);
      const auto y = static_cast<float>(base - sum * pixels);
      Area& area = areas[part];
      if (!area.y.empty() && area.y.back() == y) continue;  // a step that goes on
      area.x.push_back(x);
      area.y.push_back(y);
    }
  }
  // The tallest sum is drawn first, so that lower ones show before it.
  for (auto area = areas.rbegin(); area != areas.rend(); ++area)
    scene.areas.push_back(std::move(*area));
  const Palette& colors = palette(theme);
  const double peak_x = frame.view.x_of(curve.peak().time);
  if (curve.peak().bytes > 0 && peak_x >= 0 && peak_x <= width) {
    scene.rects.push_back({.x = place.x + peak_x - 2,
                           .y = base - static_cast<double>(curve.peak().bytes) * pixels - 2,
                           .width = 5,
                           .height = 5,
                           .fill = colors.text});
  }
  if (scale.to_capacity) {
    const double y = base - static_cast<double>(capacity) * pixels;
    scene.lines.push_back({.x1 = place.x,
                           .y1 = y,
                           .x2 = place.x + width,
                           .y2 = y,
                           .width = 1,
                           .color = colors.accent});
  }
}

void paint_link(const LinkCurve& curve, const Frame& frame, const CurvePlace& place, Theme theme,
                Scene& scene) {
  plate(frame, place, theme, scene);
  const std::vector<LinkUse> uses = curve.over(frame.edges);
  const double base = place.y + place.height;
  Area area{.base = static_cast<float>(base),
            .end = static_cast<float>(place.x + frame.view.width_px),
            .fill = color_of(OpKind::AllReduce),
            .alpha = 230};
  for (std::size_t c = 0; c < uses.size(); ++c) {
    const auto y = static_cast<float>(base - place.height * uses[c].mean);
    if (!area.y.empty() && area.y.back() == y) continue;  // a step that goes on
    area.x.push_back(static_cast<float>(edge_x(frame, place, c)));
    area.y.push_back(y);
  }
  scene.areas.push_back(std::move(area));
  // The peak, where it stands out from the mean by a pixel.
  for (std::size_t c = 0; c < uses.size();) {
    std::size_t next = c + 1;
    while (next < uses.size() && uses[next].peak == uses[c].peak) ++next;
    double mean = 1;
    for (std::size_t i = c; i < next; ++i) mean = std::min(mean, uses[i].mean);
    if ((uses[c].peak - mean) * place.height >= 1) {
      const double y = std::max(base - place.height * uses[c].peak, place.y + 0.5);
      scene.lines.push_back({.x1 = edge_x(frame, place, c),
                             .y1 = y,
                             .x2 = edge_x(frame, place, next),
                             .y2 = y,
                             .width = 1,
                             .color = palette(theme).faint_text});
    }
    c = next;
  }
}

}  // namespace rehearse::viz
