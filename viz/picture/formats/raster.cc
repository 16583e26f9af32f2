// SPDX-License-Identifier: Apache-2.0
// Scene -> pixels. One pass per kind of element; coverage is computed from exact edges.
#include <algorithm>
#include <cmath>

#include "viz/picture/formats/png.h"
#include "viz/picture/letters/letters.h"

namespace rehearse::viz {
namespace {

constexpr std::uint32_t pack(Color c) {
  return 0xFF000000u | static_cast<std::uint32_t>(c.blue) << 16 |
         static_cast<std::uint32_t>(c.green) << 8 | c.red;
}

class Canvas {
 public:
  Canvas(std::int32_t width, std::int32_t height, double scale, Color background)
      : width_(width),
        height_(height),
        scale_(scale),
        pixels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height),
                pack(background)) {
    clip({});
  }

  // To the whole pixels of the scene's bound.
  void clip(const Scene& scene) {
    const bool bound = scene.clip_width > 0;
    const auto pixel = [](double value, std::int32_t most) {
      return std::clamp(static_cast<std::int32_t>(std::lround(value)), 0, most);
    };
    x0_ = bound ? pixel(scene.clip_x, width_) : 0;
    y0_ = bound ? pixel(scene.clip_y, height_) : 0;
    x1_ = bound ? pixel(scene.clip_x + scene.clip_width, width_) : width_;
    y1_ = bound ? pixel(scene.clip_y + scene.clip_height, height_) : height_;
  }

  // coverage: 0 to 255
  void blend(std::int32_t x, std::int32_t y, Color color, std::uint32_t coverage) {
    if (x < x0_ || y < y0_ || x >= x1_ || y >= y1_ || coverage == 0) return;
    std::uint32_t& pixel = at(x, y);
    const auto mix = [coverage](std::uint32_t below, std::uint32_t above) {
      return (below * (255 - coverage) + above * coverage + 127) / 255;
    };
    pixel = 0xFF000000u | mix((pixel >> 16) & 255, color.blue) << 16 |
            mix((pixel >> 8) & 255, color.green) << 8 | mix(pixel & 255, color.red);
  }
  std::uint32_t& at(std::int32_t x, std::int32_t y) {
    return pixels_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                   static_cast<std::size_t>(x)];
  }
  std::int32_t width() const { return width_; }
  std::int32_t height() const { return height_; }
  double scale() const { return scale_; }
  std::vector<std::uint32_t> take() { return std::move(pixels_); }

 private:
  std::int32_t width_, height_;
  double scale_;
  std::int32_t x0_ = 0, y0_ = 0, x1_ = 0, y1_ = 0;  // drawn within
  std::vector<std::uint32_t> pixels_;
};

// How much of pixel [i, i+1) lies within [low, high), 0 to 1.
double cover(std::int32_t i, double low, double high) {
  return std::clamp(std::min<double>(i + 1, high) - std::max<double>(i, low), 0.0, 1.0);
}

void draw(Canvas& canvas, const Rect& rect) {
  const double right = rect.x + rect.width, bottom = rect.y + rect.height;
  const auto x0 = std::max(0, static_cast<std::int32_t>(std::floor(rect.x)));
  const auto y0 = std::max(0, static_cast<std::int32_t>(std::floor(rect.y)));
  const auto x1 = std::min(canvas.width(), static_cast<std::int32_t>(std::ceil(right)));
  const auto y1 = std::min(canvas.height(), static_cast<std::int32_t>(std::ceil(bottom)));
  for (std::int32_t y = y0; y < y1; ++y) {
    const double cover_y = cover(y, rect.y, bottom);
    for (std::int32_t x = x0; x < x1; ++x) {
      const double whole = cover_y * cover(x, rect.x, right) * rect.alpha;
      canvas.blend(x, y, rect.fill, static_cast<std::uint32_t>(whole + 0.5));
      if (rect.hatch != Hatch::None) {  // the ink is opaque, whatever the fill is
        const double ink = cover_y * cover(x, rect.x, right) *
                           hatch_ink(rect.hatch, static_cast<std::int32_t>(x / canvas.scale()),
                                     static_cast<std::int32_t>(y / canvas.scale()));
        canvas.blend(x, y, rect.ink, static_cast<std::uint32_t>(ink + 0.5));
      }
      if (rect.outlined) {  // one pixel inside the edges
        const double inner = cover(y, rect.y + 1, bottom - 1) * cover(x, rect.x + 1, right - 1);
        const double edge = cover_y * cover(x, rect.x, right) - inner;
        canvas.blend(x, y, rect.outline, static_cast<std::uint32_t>(edge * 255 + 0.5));
      }
    }
  }
}

void draw(Canvas& canvas, const Strip& strip) {
  const auto count = static_cast<double>(strip.colors.size());
  if (strip.colors.empty() || strip.width <= 0) return;
  const auto x0 = std::max(0, static_cast<std::int32_t>(std::floor(strip.x)));
  const auto x1 =
      std::min(canvas.width(), static_cast<std::int32_t>(std::ceil(strip.x + strip.width)));
  const double scale = count / strip.width;
  for (std::int32_t x = x0; x < x1; ++x) {
    const double from = std::clamp((x - strip.x) * scale, 0.0, count);
    const double to = std::clamp((x + 1 - strip.x) * scale, 0.0, count);
    double red = 0, green = 0, blue = 0, sum = 0;  // averages what falls into the pixel
    for (auto i = static_cast<std::size_t>(from); i < strip.colors.size(); ++i) {
      const double part =
          std::min(to, static_cast<double>(i + 1)) - std::max(from, static_cast<double>(i));
      if (part <= 0) break;
      const std::uint32_t color = strip.colors[i];
      if ((color >> 24) == 0) continue;
      red += part * (color & 255);
      green += part * ((color >> 8) & 255);
      blue += part * ((color >> 16) & 255);
      sum += part;
    }
    if (sum <= 0) continue;
    const auto channel = [sum](double value) {
      return static_cast<std::uint8_t>(value / sum + 0.5);
    };
    const Color color{channel(red), channel(green), channel(blue)};
    const double share =
        to > from ? std::min(1.0, sum / (to - from)) * cover(x, strip.x, strip.x + strip.width) : 0;
    const auto y0 = std::max(0, static_cast<std::int32_t>(std::floor(strip.y)));
    const auto y1 =
        std::min(canvas.height(), static_cast<std::int32_t>(std::ceil(strip.y + strip.height)));
    for (std::int32_t y = y0; y < y1; ++y) {
      canvas.blend(x, y, color,
                   static_cast<std::uint32_t>(
                       255 * share * cover(y, strip.y, strip.y + strip.height) + 0.5));
    }
  }
}

// Steps that share a pixel cover it together: drawn one by one they would leave seams.
void draw(Canvas& canvas, const Area& area) {
  if (area.x.empty()) return;
  const auto [least, most] = std::ranges::minmax(area.y);
  const auto x0 = std::max(0, static_cast<std::int32_t>(std::floor(area.x[0])));
  const auto x1 = std::min(canvas.width(), static_cast<std::int32_t>(std::ceil(area.end)));
  const auto y0 = std::max(0, static_cast<std::int32_t>(std::floor(std::min(least, area.base))));
  const auto y1 =
      std::min(canvas.height(), static_cast<std::int32_t>(std::ceil(std::max(most, area.base))));
  if (y1 <= y0) return;
  std::vector<double> covered(static_cast<std::size_t>(y1 - y0));  // of a column of pixels
  std::size_t first = 0;
  for (std::int32_t x = x0; x < x1; ++x) {
    std::ranges::fill(covered, 0);
    while (first + 1 < area.x.size() && area.x[first + 1] <= static_cast<float>(x)) ++first;
    for (std::size_t i = first; i < area.x.size() && area.x[i] < static_cast<float>(x + 1); ++i) {
      const double right = i + 1 < area.x.size() ? area.x[i + 1] : area.end;
      const double part = cover(x, area.x[i], right), top = std::min(area.y[i], area.base),
                   bottom = std::max(area.y[i], area.base);
      for (auto y = std::max(y0, static_cast<std::int32_t>(std::floor(top)));
           part > 0 && y < std::min(y1, static_cast<std::int32_t>(std::ceil(bottom))); ++y) {
        covered[static_cast<std::size_t>(y - y0)] += part * cover(y, top, bottom);
      }
    }
    for (std::int32_t y = y0; y < y1; ++y) {
      const double whole = std::min(1.0, covered[static_cast<std::size_t>(y - y0)]) * area.alpha;
      canvas.blend(x, y, area.fill, static_cast<std::uint32_t>(whole + 0.5));
    }
  }
}

// Distance to the segment decides; thin lines keep their weight.
void draw(Canvas& canvas, const Line& line) {
  const double dx = line.x2 - line.x1, dy = line.y2 - line.y1;
  const double length_squared = dx * dx + dy * dy, half = line.width / 2;
  const auto low = [&](double a, double b) {
    return static_cast<std::int32_t>(std::floor(std::min(a, b) - half - 1));
  };
  const auto high = [&](double a, double b) {
    return static_cast<std::int32_t>(std::ceil(std::max(a, b) + half + 1));
  };
  const std::int32_t y1 = std::min(canvas.height(), high(line.y1, line.y2));
  const std::int32_t x1 = std::min(canvas.width(), high(line.x1, line.x2));
  for (std::int32_t y = std::max(0, low(line.y1, line.y2)); y < y1; ++y) {
    for (std::int32_t x = std::max(0, low(line.x1, line.x2)); x < x1; ++x) {
      const double px = x + 0.5 - line.x1, py = y + 0.5 - line.y1;
      const double t =
          length_squared > 0 ? std::clamp((px * dx + py * dy) / length_squared, 0.0, 1.0) : 0;
      const double distance = std::hypot(px - t * dx, py - t * dy);
      const double coverage =
          std::clamp(half + 0.5 - distance, 0.0, 1.0) * std::min(1.0, line.width);
      canvas.blend(x, y, line.color, static_cast<std::uint32_t>(coverage * line.alpha + 0.5));
    }
  }
}

std::uint32_t level_of(char digit) {
  return 17 * static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// Coverage of a bitmap's part [x, x + size) by [y, y + size), 0 to 255.
double coverage_of(const Glyph& glyph, const char* pixels, double x, double y, double size) {
  double sum = 0;
  const auto last = [size](double from, std::int16_t most) {
    return std::min<std::int32_t>(most, static_cast<std::int32_t>(std::ceil(from + size)));
  };
  for (auto row = std::max(0, static_cast<std::int32_t>(y)); row < last(y, glyph.height); ++row) {
    for (auto column = std::max(0, static_cast<std::int32_t>(x)); column < last(x, glyph.width);
         ++column) {
      sum += cover(row, y, y + size) * cover(column, x, x + size) *
             level_of(pixels[row * glyph.width + column]);
    }
  }
  return sum / (size * size);
}

// A letter of an installed font, which is drawn for this scale.
void draw_installed(Canvas& canvas, const Letter& letter, double pen, std::int32_t base,
                    Color color) {
  const std::int32_t left = static_cast<std::int32_t>(std::lround(pen)) + letter.left,
                     top = base - letter.top;
  for (std::int32_t y = 0; y < letter.height; ++y) {
    for (std::int32_t x = 0; x < letter.width; ++x) {
      canvas.blend(left + x, top + y, color,
                   letter.coverage[static_cast<std::size_t>(y * letter.width + x)]);
    }
  }
}

// A letter of the built-in font, its bitmap scaled to the picture.
void draw_built_in(Canvas& canvas, const Glyph& glyph, const ScaledFont& scaled, double pen,
                   std::int32_t base, Color color) {
  const char* pixels = scaled.data->pixels + glyph.offset;
  const double left = std::round(pen) + glyph.left * scaled.factor,
               top = base - glyph.top * scaled.factor;
  const auto x0 = static_cast<std::int32_t>(std::floor(left)),
             y0 = static_cast<std::int32_t>(std::floor(top));
  const auto x1 = static_cast<std::int32_t>(std::ceil(left + glyph.width * scaled.factor)),
             y1 = static_cast<std::int32_t>(std::ceil(top + glyph.height * scaled.factor));
  for (std::int32_t y = y0; y < y1; ++y) {
    for (std::int32_t column = x0; column < x1; ++column) {
      const double level = coverage_of(glyph, pixels, (column - left) / scaled.factor,
                                       (y - top) / scaled.factor, 1 / scaled.factor);
      canvas.blend(column, y, color, static_cast<std::uint32_t>(level + 0.5));
    }
  }
}

double advance_in(const ScaledFont& scaled, std::uint32_t code, const Text& text, double scale) {
  if (const Glyph* glyph = built_in_glyph(*scaled.data, code))
    return glyph->advance * scaled.factor;
  return letter_of(code, text.size, scale).advance;
}

// `text` is in pixels.
void draw(Canvas& canvas, const Text& text) {
  const ScaledFont scaled = font(text.size, canvas.scale());
  double x = text.x;
  if (text.anchor != Anchor::Begin) {
    double width = 0;
    for (std::string_view rest = text.text; !rest.empty();)
      width += advance_in(scaled, next_code_point(rest), text, canvas.scale());
    x -= width * (text.anchor == Anchor::Middle ? 0.5 : 1.0);
  }
  double pen = std::round(x);
  const auto base = static_cast<std::int32_t>(std::lround(text.y));
  for (std::string_view rest = text.text; !rest.empty();) {
    const std::uint32_t code = next_code_point(rest);
    if (const Glyph* glyph = built_in_glyph(*scaled.data, code)) {
      draw_built_in(canvas, *glyph, scaled, pen, base, text.color);
    } else {
      draw_installed(canvas, letter_of(code, text.size, canvas.scale()), pen, base, text.color);
    }
    pen += advance_in(scaled, code, text, canvas.scale());
  }
}

// The scene in pixels; texts keep their size, which is the canvas' business.
Scene in_pixels(const Scene& scene, double scale) {
  Scene out = scene;
  const auto scale_all = [scale](auto&... values) { ((values *= scale), ...); };
  for (auto* rects : {&out.plates, &out.rects}) {
    for (Rect& rect : *rects) scale_all(rect.x, rect.y, rect.width, rect.height);
  }
  for (Strip& strip : out.strips) scale_all(strip.x, strip.y, strip.width, strip.height);
  const auto factor = static_cast<float>(scale);
  for (Area& area : out.areas) {
    for (float& x : area.x) x *= factor;
    for (float& y : area.y) y *= factor;
    area.base *= factor;
    area.end *= factor;
  }
  for (Line& line : out.lines) scale_all(line.x1, line.y1, line.x2, line.y2, line.width);
  for (Text& text : out.texts) scale_all(text.x, text.y);
  scale_all(out.clip_x, out.clip_y, out.clip_width, out.clip_height);
  for (Scene& layer : out.layers) layer = in_pixels(layer, scale);
  return out;
}

void draw_all(Canvas& canvas, const Scene& scene) {
  canvas.clip(scene);
  for (const Rect& plate : scene.plates) draw(canvas, plate);
  for (const Strip& strip : scene.strips) draw(canvas, strip);
  for (const Area& area : scene.areas) draw(canvas, area);
  for (const Rect& rect : scene.rects) draw(canvas, rect);
  for (const Line& line : scene.lines) draw(canvas, line);
  for (const Text& text : scene.texts) draw(canvas, text);
  for (const Scene& layer : scene.layers) draw_all(canvas, layer);
}

}  // namespace

std::uint32_t hatch_ink(Hatch hatch, std::int32_t x, std::int32_t y) {
  const auto line = [](std::int32_t distance) -> std::uint32_t {
    return distance == 0 ? 255 : distance == 1 ? 90 : 0;
  };
  const auto diagonal = [&](std::int32_t sum, std::int32_t period) {
    const std::int32_t d = ((sum % period) + period) % period;
    return line(std::min(d, period - d));
  };
  switch (hatch) {
    case Hatch::None:
      return 0;
    case Hatch::Slash:
      return diagonal(x + y, 8);
    case Hatch::Backslash:
      return diagonal(x - y, 8);
    case Hatch::Dense:
      return diagonal(x + y, 5);
    case Hatch::Cross:
      return std::max(diagonal(x + y, 8), diagonal(x - y, 8));
    case Hatch::Dots:
      return (x % 4 < 2 && (y + (x / 4) % 2 * 2) % 4 < 2) ? 230 : 0;
    case Hatch::Horizontal:
      return y % 4 == 0 ? 220 : 0;
    case Hatch::Vertical:
      return x % 4 == 0 ? 220 : 0;
  }
  return 0;
}

std::vector<std::uint32_t> rasterize(const Scene& scene) {
  Canvas canvas(scene.pixel_width(), scene.pixel_height(), scene.scale, scene.background);
  if (scene.scale == 1) {
    draw_all(canvas, scene);
  } else {
    draw_all(canvas, in_pixels(scene, scene.scale));
  }
  return canvas.take();
}

}  // namespace rehearse::viz
