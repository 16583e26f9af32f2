// SPDX-License-Identifier: Apache-2.0
// What a picture consists of, in units of `scale` pixels; drawn in the order of Scene's members.
// The only thing that back ends (svg.cc, png.cc, the window) know.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "viz/picture/colors.h"
#include "viz/picture/font.h"

namespace rehearse::viz {

struct Rect {
  double x = 0, y = 0, width = 0, height = 0;  // [px]
  Color fill;
  std::uint8_t alpha = 255;  // of the fill
  Hatch hatch = Hatch::None;
  Color ink;  // of the hatch
  bool outlined = false;
  Color outline;
};

// One row of colours, stretched over the rectangle in equal columns.
struct Strip {
  double x = 0, y = 0, width = 0, height = 0;
  std::vector<std::uint32_t> colors;  // 0xAABBGGRR, alpha 0 or 255
};

struct Line {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double width = 1;
  Color color;
  std::uint8_t alpha = 255;
};

// A filled area between a line of points and a base line (memory curves).
struct Area {
  std::vector<float> x, y;  // steps: y[i] holds from x[i] to x[i+1]
  float base = 0, end = 0;  // y of the base line; x where the last step ends
  Color fill;
  std::uint8_t alpha = 255;
};

enum class Anchor : std::uint8_t { Begin, Middle, End };
struct Text {
  double x = 0, y = 0;  // y: of the base line
  Anchor anchor = Anchor::Begin;
  TextSize size = TextSize::Normal;
  Color color;
  std::string text;
};

struct Scene {
  std::int32_t width = 0, height = 0;
  double scale = 1;  // pixels per unit
  Color background;
  std::string title;         // of the document (SVG <title>)
  std::vector<Rect> plates;  // behind everything
  std::vector<Strip> strips;
  std::vector<Area> areas;
  std::vector<Rect> rects;
  std::vector<Line> lines;
  std::vector<Text> texts;
  // Nothing of this scene is drawn outside; width 0: no bound. Layers are drawn after the rest,
  // each in the same coordinates and with its own bound; their size, scale and background are not
  // used.
  double clip_x = 0, clip_y = 0, clip_width = 0, clip_height = 0;
  std::vector<Scene> layers;

  std::int32_t pixel_width() const { return pixels(width); }
  std::int32_t pixel_height() const { return pixels(height); }

 private:
  std::int32_t pixels(std::int32_t units) const {
    return static_cast<std::int32_t>(std::lround(units * scale));
  }
};

// The scene with all that is in it so much farther right and down.
Scene moved(Scene scene, double x, double y);

}  // namespace rehearse::viz
