// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/two/pair_figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/legend.h"
#include "viz/picture/paint.h"
#include "viz/picture/terminal.h"
#include "viz/picture/two/paint_lag.h"

namespace rehearse::viz {
namespace {

constexpr double kPairMargin = 16, kPairRight = 88;

// What of both is shown, on a's clock.
struct PairRange {
  std::int64_t begin = 0, end = 0;
};
PairRange range_of(const Pair& pair, const PairOptions& options) {
  const Trace &a = pair.a.trace(), &b = pair.b.trace();
  if (options.begin != options.end) return {options.begin.value, options.end.value};
  const std::int64_t to_a = a.begin.value - pair.origin;
  return {std::min(a.begin.value, b.begin.value + to_a),
          std::max({a.begin.value + 1, a.end.value, b.end.value + to_a})};
}
// Rows [first, last) of the side with more rows.
std::pair<std::int32_t, std::int32_t> rows_of(const Pair& pair, const PairOptions& options) {
  const std::int32_t all = std::max(pair.a.trace().num_rows(), pair.b.trace().num_rows());
  const std::int32_t last = options.last_row < 0 ? all : std::min(options.last_row, all);
  return {std::clamp(options.first_row, 0, last), last};
}

struct PairTimes {
  Summary a, b;
};
PairTimes times_of(const Pair& pair, const PairRange& range, std::int32_t first, std::int32_t last) {
  const auto of = [&](const TraceIndex& index, std::int64_t shift) {
    const Trace& trace = index.trace();
    const std::int64_t begin = std::clamp(range.begin + shift, trace.begin.value, trace.end.value);
    const std::int64_t end = std::clamp(range.end + shift, begin, trace.end.value);
    return summarize(index, begin, end, std::min(first, trace.num_rows()),
                     std::min(last, trace.num_rows()));
  };
  return {of(pair.a, 0), of(pair.b, pair.origin - pair.a.trace().begin.value)};
}

std::vector<LagCurve> lags_of(const Pair& pair, std::int32_t first, std::int32_t last) {
  std::vector<LagCurve> lags;
  for (std::int32_t row = first; row < last && !pair.same.empty(); ++row)
    lags.emplace_back(pair.a.trace(), pair.b.trace(), pair.same, RankClass{row});
  return lags;
}
// What is added to every lag where other things than the steps begin together.
std::int64_t lag_shift(const Pair& pair) {
  return pair.b.trace().begin.value - pair.origin;
}
// "+3.20 ms at the end, +4.00 ms at most, -1.20 ms at least"
std::string lag_words(const LagCurve& lag, std::int64_t shift, std::int64_t end) {
  if (lag.empty()) return "no op in both";
  return lag_text(lag.at(end) + shift) + " at the end, between " +
         lag_text(lag.whole().least + shift) + " and " + lag_text(lag.whole().most + shift);
}

class PairFigure {
 public:
  PairFigure(const Pair& pair, const PairOptions& options)
      : pair_(pair),
        options_(options),
        a_(pair.a.trace()),
        b_(pair.b.trace()),
        colors_(palette(options.theme)),
        coloring_a_(a_),
        coloring_b_(b_),
        range_(range_of(pair, options)) {
    std::tie(first_, last_) = rows_of(pair, options);
    double widest = 60;
    for (std::int32_t row = first_; row < last_; ++row) {
      for (const Trace* trace : {&a_, &b_}) {
        if (row < trace->num_rows())
          widest = std::max<double>(widest, text_width(row_name(*trace, {row}), TextSize::Normal));
      }
    }
    left_ = kPairMargin + std::min(220.0, widest) + 76;
    view_a_ = {.begin = {range_.begin},
               .end = {range_.end},
               .width_px = std::max(
                   50, static_cast<std::int32_t>(options.width - left_ - kPairRight))};
    view_b_ = view_a_;
    const std::int64_t shift = pair.origin - a_.begin.value;
    view_b_.begin.value += shift;
    view_b_.end.value += shift;
  }

  Scene draw() {
    scene_.width = options_.width;
    scene_.background = colors_.background;
    header();
    legend();
    axis();
    layout_rows();
    for (const double x : ticks_) {
      scene_.lines.push_back({.x1 = x,
                              .y1 = axis_y_ - 3,
                              .x2 = x,
                              .y2 = y_ + 2,
                              .width = 1,
                              .color = colors_.faint_text,
                              .alpha = 60});
    }
    waterfall();
    for (const Trace* trace : {&a_, &b_}) {
      if (trace->caption.empty() || (trace == &b_ && b_.caption == a_.caption)) continue;
      y_ += 20;
      text(kPairMargin, y_, trace->caption, TextSize::Small, colors_.faint_text);
    }
    scene_.height = static_cast<std::int32_t>(std::ceil(y_ + kPairMargin));
    return std::move(scene_);
  }

 private:
  void text(double x, double y, std::string what, TextSize size, Color color,
            Anchor anchor = Anchor::Begin) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  }
  std::string side(bool first) const {
    return first ? side_name(a_, b_, true) : side_name(b_, a_, false);
  }
  static std::string title(const Trace& trace) {
    return trace.title.empty() ? trace.schedule_name : trace.title;
  }

  void header() {
    scene_.title = title(a_) == title(b_) ? title(a_) : title(a_) + " / " + title(b_);
    y_ = kPairMargin + 15;
    text(kPairMargin, y_, scene_.title, TextSize::Title, colors_.text);
    y_ += 20;
    const std::int64_t longer = b_.step().value - a_.step().value;
    text(kPairMargin, y_,
         "one step: " + side(true) + " " + time_text(a_.step().value) + ", " + side(false) + " " +
             time_text(b_.step().value) + " (" + lag_text(longer) + ") · " + pair_.aligned,
         TextSize::Normal, colors_.faint_text);
    times_ = times_of(pair_, range_, first_, last_);
    const bool both = times_.a.inside_unknown == times_.b.inside_unknown;
    const auto bubbles = [&](const Summary& of) {
      return percent_text(both ? of.bubble_ratio() : of.share(of.between_ops()));
    };
    text(options_.width - kPairMargin, y_,
         std::string(both ? "bubbles: " : "bubbles between ops: ") + bubbles(times_.a) + " / " +
             bubbles(times_.b),
         TextSize::Normal, colors_.text, Anchor::End);
  }

  void legend() {
    struct Entry {
      KindStyle style;
      std::string name;
      std::array<double, 2> share{};
      bool shown = false;
    };
    std::vector<Entry> all;
    for (const std::size_t d : {0u, 1u}) {
      for (const LegendEntry& one : viz::legend(d == 0 ? times_.a : times_.b, options_.theme)) {
        auto known = std::ranges::find(all, one.name, &Entry::name);
        if (known == all.end()) known = all.insert(known, {one.style, one.name});
        known->share[d] = one.share;
        known->shown = known->shown || one.shown;
      }
    }
    y_ += 14;
    legend_x_ = kPairMargin;
    for (const Entry& one : all) {
      if (one.shown)
        legend_entry({.fill = one.style.fill, .hatch = one.style.hatch, .ink = one.style.ink},
                     one.name + " " + percent_text(one.share[0]) + " / " +
                         percent_text(one.share[1]));
    }
    if (!pair_.same.empty()) {
      legend_entry({.fill = lag_color(true)}, side(false) + " is behind");
      legend_entry({.fill = lag_color(false)}, "ahead");
    }
    y_ += 12;
  }
  void legend_entry(Rect swatch, std::string name) {
    const double width = 24 + text_width(name, TextSize::Small) + 18;
    if (legend_x_ + width > options_.width - kPairMargin) {
      legend_x_ = kPairMargin;
      y_ += 19;
    }
    swatch.x = legend_x_;
    swatch.y = y_;
    swatch.width = 18;
    swatch.height = 12;
    swatch.outlined = true;
    swatch.outline = swatch.hatch == Hatch::None ? swatch.fill : swatch.ink;
    scene_.rects.push_back(swatch);
    text(legend_x_ + 24, y_ + 10, std::move(name), TextSize::Small, colors_.text);
    legend_x_ += width;
  }

  void axis() {
    y_ += 26;
    axis_y_ = y_;
    const std::int64_t step =
        nice_step(static_cast<double>(range_.end - range_.begin) * 110 / view_a_.width_px);
    const std::int64_t from = range_.begin - a_.begin.value;
    const std::int64_t first = (from > 0 ? (from + step - 1) / step : from / step) * step;
    for (std::int64_t tick = first; tick <= range_.end - a_.begin.value; tick += step) {
      const double x = left_ + view_a_.x_of(a_.begin.value + tick);
      ticks_.push_back(x);
      text(x, y_ - 6, tick_text(tick, step), TextSize::Small, colors_.faint_text, Anchor::Middle);
    }
    text(options_.width - kPairMargin, y_ - 6, "idle", TextSize::Small, colors_.faint_text,
         Anchor::End);
    y_ += 2;
  }

  void layout_rows() {
    static constexpr std::array<std::pair<std::int32_t, double>, 4> kHeights{
        {{4, 30}, {8, 24}, {16, 16}, {48, 11}}};
    const std::int32_t rows = last_ - first_;
    double height = std::max(2.0, std::floor(600.0 / std::max(1, rows)));
    for (auto known = kHeights.rbegin(); known != kHeights.rend(); ++known) {
      if (rows <= known->first) height = known->second;
    }
    const std::vector<LagCurve> lags = lags_of(pair_, first_, last_);
    const std::int64_t shift = lag_shift(pair_);
    std::int64_t greatest = 0;
    for (const LagCurve& lag : lags) {
      greatest = std::max({greatest, std::abs(lag.whole().least + shift),
                           std::abs(lag.whole().most + shift)});
    }
    const std::int64_t top = lag_top(greatest);
    Frame frame_a, frame_b;
    layout(pair_.a, view_a_, lanes_of(a_), frame_a);
    layout(pair_.b, view_b_, lanes_of(b_), frame_b);
    const auto lane = [&](bool first, std::int32_t row) {
      const Frame& frame = first ? frame_a : frame_b;
      const TraceIndex& index = first ? pair_.a : pair_.b;
      const auto i = static_cast<std::size_t>(row - first_);
      if (i >= frame.lanes.size()) return;
      paint_lane(index, first ? coloring_a_ : coloring_b_, frame, frame.lanes[i],
                 {.x = left_, .y = y_, .height = height}, options_.theme, scene_);
      if (height >= 11) {
        const Summary own = row_summary(first, row);
        text(left_ - 8, y_ + height / 2 + 4, side(first), TextSize::Small, colors_.faint_text,
             Anchor::End);
        text(options_.width - kPairMargin, y_ + height / 2 + 4, percent_text(own.bubble_ratio()),
             TextSize::Small, colors_.text, Anchor::End);
      }
      y_ += height;
    };
    if (pair_.same.empty()) {
      for (const bool first : {true, false}) {
        const Trace& trace = first ? a_ : b_;
        for (std::int32_t row = first_; row < std::min(last_, trace.num_rows()); ++row) {
          name(row_name(trace, {row}), height);
          lane(first, row);
          y_ += height >= 11 ? 3 : 0;
        }
        y_ += 14;
      }
      return;
    }
    const double lag_height = std::max(3.0, std::floor(height * 0.8));
    for (std::int32_t row = first_; row < last_; ++row) {
      name(row_name(a_, {row}), height);
      lane(true, row);
      y_ += height >= 11 ? 1 : 0;
      lane(false, row);
      y_ += height >= 11 ? 1 : 0;
      const LagCurve& lag = lags[static_cast<std::size_t>(row - first_)];
      paint_lag(lag, view_b_, frame_b.edges,
                {.x = left_, .y = y_, .height = lag_height, .top = top, .shift = shift},
                options_.theme, scene_);
      if (lag_height >= 9 && !lag.empty()) {
        text(left_ - 8, y_ + lag_height / 2 + 4, "to " + time_text(top), TextSize::Small,
             colors_.faint_text, Anchor::End);
        text(options_.width - kPairMargin, y_ + lag_height / 2 + 4,
             lag_text(lag.at(view_b_.end.value) + shift), TextSize::Small, colors_.text,
             Anchor::End);
      }
      y_ += lag_height + (height >= 11 ? 8 : 1);
    }
  }
  void name(std::string words, double height) {
    if (height >= 11)
      text(kPairMargin, y_ + height / 2 + 5, std::move(words), TextSize::Normal, colors_.text);
  }
  std::vector<std::int32_t> lanes_of(const Trace& trace) const {
    std::vector<std::int32_t> lanes;
    for (std::int32_t row = first_; row < std::min(last_, trace.num_rows()); ++row)
      lanes.push_back(row * trace.slots);
    return lanes;
  }
  Summary row_summary(bool first, std::int32_t row) const {
    const PairTimes times = times_of(pair_, range_, row, row + 1);
    return first ? times.a : times.b;
  }

  void waterfall() {
    if (pair_.waterfall == nullptr) return;
    Scene fall = waterfall_scene(*pair_.waterfall, options_.theme);
    y_ += 16;
    const double height = fall.height;
    Scene placed = moved(std::move(fall), std::max(0.0, left_ - 200), y_);
    scene_.layers.push_back(std::move(placed));
    y_ += height;
  }

  const Pair& pair_;
  const PairOptions& options_;
  const Trace &a_, &b_;
  const Palette& colors_;
  Coloring coloring_a_, coloring_b_;
  PairRange range_;
  std::int32_t first_ = 0, last_ = 0;
  double left_ = 0, y_ = 0, axis_y_ = 0, legend_x_ = 0;
  View view_a_, view_b_;
  PairTimes times_;
  Scene scene_;
  std::vector<double> ticks_;
};

}  // namespace

std::string side_name(const Trace& one, const Trace& other, bool first) {
  if (one.label != other.label)
    return one.label == TraceLabel::Predicted ? "predicted" : "measured";
  if (one.schedule_hash != other.schedule_hash && !one.schedule_name.empty())
    return one.schedule_name.substr(0, one.schedule_name.find('('));
  return first ? "first" : "second";
}

Scene pair_figure(const Pair& pair, const PairOptions& options) {
  return PairFigure(pair, options).draw();
}

std::string pair_text(const Pair& pair, const PairOptions& options, std::int32_t columns,
                      bool color) {
  const Trace &a = pair.a.trace(), &b = pair.b.trace();
  const PairRange range = range_of(pair, options);
  const auto [first, last] = rows_of(pair, options);
  columns = static_cast<std::int32_t>(
      std::min<std::int64_t>(std::max(10, columns), range.end - range.begin));
  const std::int64_t shift = pair.origin - a.begin.value;
  const std::string side_a = side_name(a, b, true), side_b = side_name(b, a, false);
  std::string out = (a.title.empty() ? a.schedule_name : a.title) + "\none step: " + side_a + " " +
                    time_text(a.step().value) + ", " + side_b + " " + time_text(b.step().value) +
                    " (" + lag_text(b.step().value - a.step().value) + "), " + pair.aligned +
                    ", each column " + time_text((range.end - range.begin) / columns) + "\n";
  std::size_t label = 0;
  for (std::int32_t row = first; row < last; ++row) {
    for (const Trace* trace : {&a, &b}) {
      if (row < trace->num_rows()) label = std::max(label, row_name(*trace, {row}).size());
    }
  }
  const std::size_t side = std::max(side_a.size(), side_b.size());
  const auto line = [&](bool of_a, std::int32_t row) {
    const TraceIndex& index = of_a ? pair.a : pair.b;
    const std::int64_t moved = of_a ? 0 : shift;
    if (row >= index.trace().num_rows()) return;
    std::string name = row_name(index.trace(), {row});
    name.resize(label, ' ');
    std::string which = of_a ? side_a : side_b;
    which.resize(side, ' ');
    out += name + " " + which + " |" +
           terminal_row(index, row, range.begin + moved, range.end + moved, columns, color) + "|";
    const PairTimes times = times_of(pair, range, row, row + 1);
    out += " idle " + percent_text((of_a ? times.a : times.b).bubble_ratio()) + "\n";
  };
  const std::vector<LagCurve> lags = lags_of(pair, first, last);
  for (std::int32_t row = first; row < last; ++row) {
    line(true, row);
    if (pair.same.empty()) continue;
    line(false, row);
    out += std::string(label + side + 3, ' ') + side_b + ": " +
           lag_words(lags[static_cast<std::size_t>(row - first)], lag_shift(pair),
                     range.end + shift) +
           "\n";
  }
  for (std::int32_t row = first; row < last && pair.same.empty(); ++row)
    line(false, row);
  if (pair.waterfall != nullptr) out += waterfall_text(*pair.waterfall);
  return out;
}

}  // namespace rehearse::viz
