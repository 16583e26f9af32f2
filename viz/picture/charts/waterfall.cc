// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/charts/waterfall.h"

#include <algorithm>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

constexpr double kFallMargin = 20, kFallTitle = 22, kFallRow = 26, kBar = 16, kFallGap = 12;
constexpr double kBars = 460, kValue = 84, kMostLabel = 380;
// Of Okabe and Ito: totals, what takes longer, what takes less.
constexpr Color kTotal{0, 114, 178}, kLonger{213, 94, 0}, kShorter{0, 158, 115};

std::string difference_text(const WaterfallStep& step) {
  return (step.difference > 0 ? "+" : "") + time_text(step.difference);
}

class FallDrawing {
 public:
  FallDrawing(const Waterfall& waterfall, Theme theme)
      : waterfall_(waterfall), colors_(palette(theme)) {
    std::int64_t at = waterfall.begin;
    least_ = most_ = at;
    label_ = std::max(text_width(waterfall.from, TextSize::Normal),
                      text_width(waterfall.to, TextSize::Normal));
    for (const WaterfallStep& step : waterfall.steps) {
      at += step.difference;
      least_ = std::min(least_, at);
      most_ = std::max(most_, at);
      label_ = std::max<double>(label_, text_width(step.label, TextSize::Normal));
    }
    label_ = std::min(label_, kMostLabel);
    // The bars' ends differ by a few pixels alone where the axis begins at 0.
    constexpr std::int64_t kSmall = 4;
    axis_ = least_ < most_ && (most_ - least_) * kSmall < most_
                ? std::max<std::int64_t>(0, least_ - (most_ - least_) / 2)
                : 0;
    left_ = kFallMargin + label_ + kFallGap;
    width_ = left_ + kBars + kValue + kFallMargin;
    title_ = wrapped(waterfall.title, TextSize::Title, width_ - 2 * kFallMargin);
  }

  Scene run() {
    double y = kFallMargin;
    for (const std::string& line : title_) {
      text(kFallMargin, y + 16, line, Anchor::Begin, TextSize::Title);
      y += kFallTitle;
    }
    y += kFallGap;
    top_ = y;
    bar(y, waterfall_.from, axis_, waterfall_.begin, kTotal, time_text(waterfall_.begin));
    std::int64_t at = waterfall_.begin;
    for (const WaterfallStep& step : waterfall_.steps) {
      y += kFallRow;
      const bool longer = step.difference > 0;
      bar(y, step.label, std::min(at, at + step.difference), std::max(at, at + step.difference),
          longer ? kLonger : kShorter, difference_text(step));
      joint(y, at);
      at += step.difference;
    }
    y += kFallRow;
    joint(y, at);
    bar(y, waterfall_.to, axis_, at, kTotal, time_text(at));
    y += kFallRow;
    axis(y);
    scene_.width = static_cast<std::int32_t>(width_);
    scene_.height = static_cast<std::int32_t>(y + kFallRow + (axis_ > 0 ? kFallRow : 0));
    scene_.background = colors_.background;
    scene_.title = waterfall_.title;
    return std::move(scene_);
  }

 private:
  double at_x(std::int64_t ns) const {
    const double span = std::max<double>(1, static_cast<double>(most_ - axis_));
    return left_ + kBars * static_cast<double>(ns - axis_) / span;
  }
  void text(double x, double y, const std::string& what, Anchor anchor,
            TextSize size = TextSize::Normal) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = colors_.text, .text = what});
  }
  void bar(double y, const std::string& label, std::int64_t from, std::int64_t until, Color fill,
           const std::string& value) {
    text(left_ - kFallGap, y + kBar - 3, clipped(label, TextSize::Normal, label_), Anchor::End);
    scene_.rects.push_back({.x = at_x(from),
                            .y = y,
                            .width = std::max(1.0, at_x(until) - at_x(from)),
                            .height = kBar,
                            .fill = fill});
    text(at_x(until) + 6, y + kBar - 3, value, Anchor::Begin);
  }
  // From the end of the bar above to the beginning of the one at y.
  void joint(double y, std::int64_t at) {
    scene_.lines.push_back({.x1 = at_x(at),
                            .y1 = y - kFallRow + kBar,
                            .x2 = at_x(at),
                            .y2 = y,
                            .width = 1,
                            .color = colors_.faint_text});
  }
  void axis(double y) {
    const std::int64_t step = nice_step(static_cast<double>(most_ - axis_) / 5);
    for (std::int64_t tick = (axis_ + step - 1) / step * step; tick <= most_; tick += step) {
      scene_.plates.push_back(
          {.x = at_x(tick) - 0.5, .y = top_, .width = 1, .height = y - top_, .fill = colors_.grid});
      text(at_x(tick), y + 14, tick_text(tick, step), Anchor::Middle, TextSize::Small);
    }
    if (axis_ > 0) {
      text(left_, y + 34, "The axis begins at " + time_text(axis_) + ".", Anchor::Begin,
           TextSize::Small);
    }
  }

  const Waterfall& waterfall_;
  const Palette& colors_;
  Scene scene_;
  std::int64_t least_ = 0, most_ = 0, axis_ = 0;       // [ns]; axis_: where it begins
  double label_ = 0, left_ = 0, width_ = 0, top_ = 0;  // [px]
  std::vector<std::string> title_;
};

}  // namespace

Scene waterfall_scene(const Waterfall& waterfall, Theme theme) {
  return FallDrawing(waterfall, theme).run();
}

std::string waterfall_text(const Waterfall& waterfall) {
  std::int64_t end = waterfall.begin;
  std::size_t label = std::max(waterfall.from.size(), waterfall.to.size());
  for (const WaterfallStep& step : waterfall.steps) {
    end += step.difference;
    label = std::max(label, step.label.size());
  }
  std::string out = waterfall.title + "\n";
  const auto line = [&](std::string name, const std::string& value) {
    name.resize(label + 2, ' ');
    out += "  " + name + value + "\n";
  };
  line(waterfall.from, time_text(waterfall.begin));
  for (const WaterfallStep& step : waterfall.steps) line(step.label, difference_text(step));
  line(waterfall.to, time_text(end));
  return out;
}

}  // namespace rehearse::viz
