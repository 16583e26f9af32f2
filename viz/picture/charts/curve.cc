// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/charts/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rehearse::viz {
namespace {

constexpr double kCurveLeft = 70, kCurveTop = 46, kHeight = 280, kCurveRight = 30, kFoot = 68;
constexpr double kCurveLine = 16, kCurveTitle = 22;
constexpr double kLeastWidth = 420, kLeastPerPoint = 70, kCurveGap = 16;

// The largest of 1, 2, 5 times a power of ten that cuts `most` into at least four.
double tick_of(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (most / (factor * power) >= 4) return factor * power;
  }
  return power;
}

class CurveDrawing {
 public:
  CurveDrawing(const Curve& curve, Theme theme) : curve_(curve), colors_(palette(theme)) {
    double per_point = kLeastPerPoint;
    for (const CurvePoint& point : curve.points) {
      most_ = std::max(most_, point.high);
      per_point = std::max(per_point, text_width(point.label, TextSize::Normal) + kCurveGap);
    }
    width_ = std::max(kLeastWidth, per_point * static_cast<double>(curve.points.size()));
    title_ = wrapped(curve.title, TextSize::Title, width_);
    top_y_ = kCurveTop + kCurveTitle * static_cast<double>(title_.size());
    for (const CurvePoint& point : curve.points) {
      if (point.reason.empty()) continue;
      for (std::string& line :
           wrapped(point.label + ": " + point.reason, TextSize::Small, width_)) {
        reasons_.push_back(std::move(line));
      }
    }
    scene_.width = static_cast<std::int32_t>(kCurveLeft + width_ + kCurveRight);
    scene_.height = static_cast<std::int32_t>(top_y_ + kHeight + kFoot +
                                              kCurveLine * static_cast<double>(reasons_.size()));
    scene_.background = colors_.background;
    scene_.title = curve.title;
  }

  Scene run() {
    double y = 4;
    for (const std::string& line : title_) {
      text(kCurveLeft, y += kCurveTitle, line, Anchor::Begin, TextSize::Title);
    }
    text(kCurveLeft, y + 18, curve_.y_title, Anchor::Begin, TextSize::Small);
    axis();
    band();
    for (std::size_t i = 0; i < curve_.points.size(); ++i) point(i);
    text(kCurveLeft + width_ / 2, top_y_ + kHeight + 40, curve_.x_title, Anchor::Middle);
    y = top_y_ + kHeight + kFoot - kCurveLine;
    for (const std::string& line : reasons_) {
      text(kCurveLeft, y += kCurveLine, line, Anchor::Begin, TextSize::Small);
    }
    return std::move(scene_);
  }

 private:
  void text(double x, double y, const std::string& what, Anchor anchor,
            TextSize size = TextSize::Normal) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = colors_.text, .text = what});
  }
  double at_x(std::size_t i) const {
    return kCurveLeft + width_ * (static_cast<double>(i) + 0.5) /
                            static_cast<double>(std::max<std::size_t>(curve_.points.size(), 1));
  }
  double at_y(double value) const { return top_y_ + kHeight * (1 - value / top_); }

  // Its lines are plates: behind all marks.
  void axis() {
    if (most_ <= 0) most_ = 1;
    const double tick = tick_of(most_);
    const double ticks = std::ceil(most_ / tick);
    top_ = tick * ticks;
    for (double t = 0; t <= ticks; ++t) {
      const double y = at_y(t * tick);
      scene_.plates.push_back(
          {.x = kCurveLeft, .y = y - 0.5, .width = width_, .height = 1, .fill = colors_.grid});
      text(kCurveLeft - 8, y + 4, fmt::format("{:g}", t * tick), Anchor::End);
    }
  }

  bool has(std::size_t i) const { return curve_.points[i].reason.empty(); }

  void line(std::size_t a, std::size_t b, double from, double to, double width,
            std::uint8_t alpha) {
    scene_.lines.push_back({.x1 = at_x(a),
                            .y1 = at_y(from),
                            .x2 = at_x(b),
                            .y2 = at_y(to),
                            .width = width,
                            .color = colors_.accent,
                            .alpha = alpha});
  }

  // From point to point, and over each of them a bar from low to high.
  void band() {
    for (std::size_t i = 0; i < curve_.points.size(); ++i) {
      if (!has(i)) continue;
      const CurvePoint& p = curve_.points[i];
      constexpr double kBar = 10;
      scene_.plates.push_back({.x = at_x(i) - kBar / 2,
                               .y = at_y(p.high),
                               .width = kBar,
                               .height = at_y(p.low) - at_y(p.high),
                               .fill = colors_.accent,
                               .alpha = 70});
      if (!curve_.connected || i == 0 || !has(i - 1)) continue;
      const CurvePoint& before = curve_.points[i - 1];
      line(i - 1, i, before.value, p.value, 2, 255);
      line(i - 1, i, before.low, p.low, 1, 110);
      line(i - 1, i, before.high, p.high, 1, 110);
    }
  }

  void point(std::size_t i) {
    const CurvePoint& p = curve_.points[i];
    constexpr double kDot = 7;
    text(at_x(i), top_y_ + kHeight + 18, p.label, Anchor::Middle);
    if (has(i)) {
      scene_.rects.push_back({.x = at_x(i) - kDot / 2,
                              .y = at_y(p.value) - kDot / 2,
                              .width = kDot,
                              .height = kDot,
                              .fill = colors_.accent});
    } else {
      text(at_x(i), at_y(0) - 6, "x", Anchor::Middle);
    }
  }

  const Curve& curve_;
  const Palette& colors_;
  Scene scene_;
  double most_ = 0, top_ = 1, width_ = 0;  // the largest value; the axis' end; [px]
  double top_y_ = 0;                       // of the axis' end [px]
  std::vector<std::string> title_, reasons_;
};

}  // namespace

Scene curve_scene(const Curve& curve, Theme theme) {
  return CurveDrawing(curve, theme).run();
}

}  // namespace rehearse::viz
