// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/legend.h"
#include "viz/picture/paint.h"
#include "viz/picture/paint_curves.h"

namespace rehearse::viz {
namespace {

constexpr double kFigureMargin = 16, kFigureRight = 76;

class Figure {
 public:
  Figure(const TraceIndex& index, const FigureOptions& options)
      : index_(index),
        trace_(index.trace()),
        options_(options),
        colors_(palette(options.theme)),
        coloring_(trace_, options.color_by) {
    if (options.color_by != ColorBy::Kinds)
      colored_ = std::make_unique<TraceIndex>(trace_, coloring_.classes());
    begin_ = options.begin == options.end ? trace_.begin : options.begin;
    end_ = options.begin == options.end ? trace_.end : options.end;
    if (end_ <= begin_) end_ = begin_ + Nanoseconds{1};
    last_row_ =
        options.last_row < 0 ? trace_.num_rows() : std::min(options.last_row, trace_.num_rows());
    first_row_ = std::clamp(options.first_row, 0, last_row_);
    rows_ = last_row_ - first_row_;
    streams_ = streams_in_view();
    for (std::int32_t row = first_row_; row < last_row_; ++row) {
      label_width_ = std::max(
          label_width_, static_cast<double>(text_width(row_name(trace_, {row}), TextSize::Normal)));
    }
    left_ = kFigureMargin + std::min(220.0, std::max(60.0, label_width_)) +
            (streams_.size() > 1 ? 56 : 10);
    view_ = {
        .begin = begin_,
        .end = end_,
        .width_px = std::max(50, static_cast<std::int32_t>(options.width - left_ - kFigureRight))};
  }

  Scene draw() {
    scene_.width = options_.width;
    scene_.background = colors_.background;
    header();
    legend();
    axis();
    lanes();
    footer();
    scene_.height = static_cast<std::int32_t>(std::ceil(y_ + kFigureMargin));
    return std::move(scene_);
  }

 private:
  bool shows_memory() const {
    return options_.memory && rows_ <= 16 && !trace_.memory_begin.empty();
  }
  double lane_height() const {
    static constexpr std::array<std::pair<std::int32_t, double>, 5> kHeights{
        {{4, 44}, {8, 34}, {16, 26}, {32, 20}, {64, 13}}};
    for (const auto& [rows, height] : kHeights) {
      if (rows_ <= rows) return height;
    }
    return std::max(2.0, std::floor(900.0 / rows_));
  }
  double gap() const { return rows_ <= 16 ? 4 : rows_ <= 64 ? 2 : 0; }

  void text(double x, double y, std::string what, TextSize size, Color color,
            Anchor anchor = Anchor::Begin) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  }

  void header() {
    summary_ = summarize(index_, begin_.value, end_.value, first_row_, last_row_);
    const std::string title = !trace_.title.empty()           ? trace_.title
                              : !trace_.schedule_name.empty() ? trace_.schedule_name
                                                              : "timeline";
    scene_.title = title;
    y_ = kFigureMargin + 15;
    text(kFigureMargin, y_, title, TextSize::Title, colors_.text);
    std::string line = trace_.label == TraceLabel::Predicted ? "predicted" : "measured";
    if (!trace_.schedule_name.empty() && trace_.schedule_name != title) {
      line += " · " + trace_.schedule_name;
    }
    line += " · one step takes " + time_text(trace_.step().value);
    if (begin_ != trace_.begin || end_ != trace_.end) {
      line += " · shown: " + time_text(begin_.value - trace_.begin.value) + " to " +
              time_text(end_.value - trace_.begin.value);
    }
    y_ += 20;
    text(kFigureMargin, y_, line, TextSize::Normal, colors_.faint_text);
    const std::string bubbles = "bubbles: " + bubbles_text(summary_);
    constexpr double kApart = 20;
    if (text_width(line, TextSize::Normal) + kApart + text_width(bubbles, TextSize::Normal) >
        options_.width - 2 * kFigureMargin) {  // no room beside it
      y_ += 18;
      text(kFigureMargin, y_, bubbles, TextSize::Normal, colors_.text);
    } else {
      text(options_.width - kFigureMargin, y_, bubbles, TextSize::Normal, colors_.text,
           Anchor::End);
    }
  }

  // Every kind and cause in view, with its share of the ranks' time; then what memory is for.
  void legend() {
    legend_x_ = kFigureMargin;
    y_ += 14;
    const Summary by_color = summarize(colored(), begin_.value, end_.value, first_row_, last_row_);
    for (const LegendEntry& one : viz::legend(by_color, coloring_, options_.theme)) {
      if (one.shown) {
        legend_entry(one.style, one.name + " " + percent_text(one.share));
      } else if (one.time == 0) {  // in stripes alone
        legend_entry(one.style, one.name);
      }
    }
    const std::vector<KindStyle> shades = coloring_.shades(options_.theme);
    for (std::size_t chunk = 0; chunk < shades.size(); ++chunk)
      legend_entry(shades[chunk], (chunk == 0 ? "chunk " : "") + std::to_string(chunk));
    if (streams_.size() > 1)
      legend_entry(style_of(kind_of(OpKind::Send), options_.theme), "communication");
    if (shows_memory()) {
      legend_x_ = kFigureMargin;
      y_ += 19;
      for (const LegendEntry& one : memory_legend(trace_)) legend_entry(one.style, one.name);
    }
    y_ += 12;
  }
  void legend_entry(const KindStyle& style, std::string name) {
    const double width = 18 + 6 + text_width(name, TextSize::Small) + 18;
    if (legend_x_ + width > options_.width - kFigureMargin) {
      legend_x_ = kFigureMargin;
      y_ += 19;
    }
    scene_.rects.push_back({.x = legend_x_,
                            .y = y_,
                            .width = 18,
                            .height = 12,
                            .fill = style.fill,
                            .hatch = style.hatch,
                            .ink = style.ink,
                            .outlined = true,
                            .outline = style.hatch == Hatch::None ? style.fill : style.ink});
    text(legend_x_ + 24, y_ + 10, std::move(name), TextSize::Small, colors_.text);
    legend_x_ += width;
  }

  // Streams worth a lane in this view: the compute stream, and those busy for 1/400 of it
  // somewhere.
  std::vector<std::int32_t> streams_in_view() const {
    std::vector<std::int32_t> streams;
    for (std::int32_t slot = 0; slot < trace_.slots; ++slot) {
      std::int64_t most = 0;
      for (std::int32_t row = first_row_; row < last_row_ && slot > 0; ++row) {
        const LaneIndex& lane = index_.lane(row * trace_.slots + slot);
        std::array<std::int64_t, kNumKinds> time;
        lane.busy(begin_.value, end_.value, time.data());
        most = std::max(
            most, std::accumulate(time.begin(), time.begin() + lane.num_kinds, std::int64_t{0}));
      }
      if (slot == 0 || (rows_ <= 16 && most * 400 >= end_.value - begin_.value))
        streams.push_back(slot);
    }
    return streams;
  }

  void axis() {
    y_ += 26;
    axis_y_ = y_;
    const std::int64_t span = end_.value - begin_.value;
    const std::int64_t step = nice_step(static_cast<double>(span) * 110 / view_.width_px);
    const std::int64_t zero = trace_.begin.value;
    const double right = options_.width - kFigureMargin,
                 head = right - text_width("idle", TextSize::Small) - 6;
    for (std::int64_t tick = zero + (begin_.value - zero + step - 1) / step * step;
         tick <= end_.value; tick += step) {
      const double x = left_ + view_.x_of(tick);
      ticks_.push_back(x);
      const std::string label = tick_text(tick - zero, step);
      if (x + text_width(label, TextSize::Small) / 2.0 < head)
        text(x, y_ - 6, label, TextSize::Small, colors_.faint_text, Anchor::Middle);
    }
    text(right, y_ - 6, "idle", TextSize::Small, colors_.faint_text, Anchor::End);
    y_ += 2;
  }

  void lanes() {
    const double height = lane_height();
    std::vector<std::int32_t> shown;
    for (std::int32_t row = first_row_; row < last_row_; ++row) {
      for (const std::int32_t slot : streams_) shown.push_back(row * trace_.slots + slot);
    }
    Frame frame;
    layout(colored(), view_, shown, frame);
    for (const LaneFrame& lane : frame.lanes) {
      const std::int32_t slot = lane.lane % trace_.slots;
      const std::int32_t row = lane.lane / trace_.slots;
      const double lane_px = slot == 0 ? height : std::max(8.0, height * 0.3);
      if (slot == 0 && lane.lane != shown.front()) y_ += gap();
      paint_lane(colored(), coloring_, frame, lane, {.x = left_, .y = y_, .height = lane_px},
                 options_.theme, scene_);
      if (slot == 0) row_labels(row, height);
      if (slot != 0 && lane_px >= 8) {
        text(left_ - 8, y_ + lane_px / 2 + 4, lane_name(trace_, lane.lane), TextSize::Small,
             colors_.faint_text, Anchor::End);
      }
      y_ += lane_px + (streams_.size() > 1 ? 1 : 0);
      const bool last_of_row =
          &lane == &frame.lanes.back() || (&lane + 1)->lane / trace_.slots != row;
      if (last_of_row && shows_memory()) memory(row, frame);
    }
    for (const double x : ticks_) {
      scene_.lines.push_back({.x1 = x,
                              .y1 = axis_y_ - 3,
                              .x2 = x,
                              .y2 = y_ + 2,
                              .width = 1,
                              .color = colors_.faint_text,
                              .alpha = 60});
    }
  }

  void row_labels(std::int32_t row, double height) {
    // Where lanes are lower than a line of text, every n-th is named.
    const auto every = static_cast<std::int32_t>(std::ceil(13.0 / (height + gap())));
    if ((row - first_row_) % every != 0) return;
    const TextSize size = height >= 15 ? TextSize::Normal : TextSize::Small;
    const double base =
        y_ + std::max(height / 2 + (size == TextSize::Normal ? 5 : 4), every > 1 ? 9.0 : 0.0);
    text(kFigureMargin, base, row_name(trace_, {row}), size, colors_.text);
    const Summary own = summarize(index_, begin_.value, end_.value, row, row + 1);
    text(options_.width - kFigureMargin, base, percent_text(own.bubble_ratio()), size, colors_.text,
         Anchor::End);
  }

  // The row's memory over time, with the most that it ever holds.
  void memory(std::int32_t row, const Frame& frame) {
    constexpr double kRowHeight = 44;
    const MemoryCurve curve(trace_, {row});
    y_ += 3;
    paint_memory(trace_, {row}, curve, frame, {.x = left_, .y = y_, .height = kRowHeight},
                 options_.theme, scene_);
    text(left_ - 8, y_ + kRowHeight / 2 + 4, "memory", TextSize::Small, colors_.faint_text,
         Anchor::End);
    text(options_.width - kFigureMargin, y_ + kRowHeight / 2 + 4, bytes_text(curve.peak().bytes),
         TextSize::Small, colors_.text, Anchor::End);
    y_ += kRowHeight;
  }

  void footer() {
    y_ += 22;
    std::string line =
        "A row is what one rank does, from left to right. Full colour: it computes. "
        "Hatched: a bubble, it waits; the pattern says for what.";
    if (!trace_.caption.empty()) line = trace_.caption + ". " + line;
    constexpr double kLine = 15;
    y_ -= kLine;
    for (std::string& part : wrapped(line, TextSize::Small, options_.width - 2 * kFigureMargin)) {
      text(kFigureMargin, y_ += kLine, std::move(part), TextSize::Small, colors_.faint_text);
    }
  }

  const TraceIndex& index_;
  const Trace& trace_;
  const FigureOptions& options_;
  const TraceIndex& colored() const { return colored_ != nullptr ? *colored_ : index_; }

  const Palette& colors_;
  Coloring coloring_;
  std::unique_ptr<TraceIndex> colored_;  // by the coloring's classes; null: by kind
  Nanoseconds begin_{}, end_{};
  std::int32_t first_row_ = 0, last_row_ = 0, rows_ = 0;
  std::vector<std::int32_t> streams_;
  double label_width_ = 0, left_ = 0, y_ = 0, axis_y_ = 0, legend_x_ = 0;
  View view_;
  Summary summary_;
  Scene scene_;
  std::vector<double> ticks_;
};

}  // namespace

Scene figure(const TraceIndex& index, const FigureOptions& options) {
  return Figure(index, options).draw();
}

}  // namespace rehearse::viz
