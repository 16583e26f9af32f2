// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/ranks/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

constexpr double kHeatMargin = 16, kHeatRight = 76, kHeatLeft = 132;
constexpr std::int32_t kMostBands = 420;  // a window has room for twice as many strips
constexpr double kMarked = 0.25;          // of a cell's time, above its mean

// Monotone in lightness, so that every eye reads it; vermilion between.
constexpr std::array<Color, 4> kOnLight{
    {{247, 247, 245}, {250, 178, 120}, {213, 94, 0}, {74, 22, 8}}};
constexpr std::array<Color, 4> kOnDark{
    {{30, 31, 36}, {112, 50, 12}, {226, 112, 24}, {255, 232, 190}}};
constexpr Color kHeatFaster{0, 114, 178}, kHeatSlower{213, 94, 0};
constexpr double kMostExcess = 0.5;  // the end of the scale: twice the median

Color between(Color a, Color b, double share) {
  const auto mix = [share](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + share * (y - x)));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

std::uint32_t opaque(Color c) {
  return 0xFF000000u | static_cast<std::uint32_t>(c.blue) << 16 |
         static_cast<std::uint32_t>(c.green) << 8 | c.red;
}

// Along the scale: -1 to 1, negative for excess alone.
double position_of(HeatOf of, double share) {
  const double most = of == kHeatExcess ? kMostExcess : 1;
  const double root = std::sqrt(std::min(std::fabs(share) / most, 1.0));
  return share < 0 ? -root : root;
}
Color color_at(HeatOf of, double position, Theme theme) {
  const bool light = theme == Theme::Light;
  if (of == kHeatExcess) {
    const Color even = light ? Color{244, 243, 238} : Color{52, 52, 57};
    return between(even, position < 0 ? kHeatFaster : kHeatSlower, std::fabs(position));
  }
  const auto& stops = light ? kOnLight : kOnDark;
  const double at = std::clamp(position, 0.0, 1.0) * static_cast<double>(stops.size() - 1);
  const std::size_t i = std::min(stops.size() - 2, static_cast<std::size_t>(at));
  return between(stops[i], stops[i + 1], at - static_cast<double>(i));
}

// Colours of a thousand positions, so that a cell costs a root and a look.
class ColorTable {
 public:
  ColorTable(HeatOf of, Theme theme) : of_(of) {
    for (std::size_t i = 0; i < colors_.size(); ++i)
      colors_[i] = opaque(color_at(of, static_cast<double>(i) / kSteps - 1, theme));
  }
  std::uint32_t of(double share) const {
    return colors_[static_cast<std::size_t>((position_of(of_, share) + 1) * kSteps + 0.5)];
  }

 private:
  static constexpr double kSteps = 512;
  HeatOf of_;
  std::array<std::uint32_t, 1025> colors_{};
};

std::string share_text(HeatOf of, double share) {
  return (of == kHeatExcess && share > 0 ? "+" : "") + percent_text(share);
}

// "idle", "waiting: communication", what the map is of.
std::string words_of(HeatOf of) {
  if (of == kHeatIdle) return "idle time";
  if (of == kHeatExcess) return "time beyond the median of equal ranks";
  return "idle time: " + std::string(heat_name(of));
}

std::pair<std::int64_t, std::int64_t> shown_range(const Trace& trace, const HeatOptions& shown) {
  const bool whole = shown.begin == shown.end;
  const std::int64_t begin = whole ? trace.begin.value : shown.begin.value;
  return {begin, std::max(begin + 1, whole ? trace.end.value : shown.end.value)};
}

std::string title_of(const Trace& trace) {
  if (!trace.title.empty()) return trace.title;
  return trace.schedule_name.empty() ? "timeline" : trace.schedule_name;
}

std::string summary_of(const HeatSource& source, const HeatTable& table, HeatOf of) {
  const HeatTotals whole = heat_totals(table);
  return share_text(of, whole.mean) + " of all ranks' time, at most " +
         share_text(of, whole.worst) + " (" + row_name(source.trace(), {whole.worst_row}) + ")";
}

}  // namespace

Color heat_color(HeatOf of, double share, Theme theme) {
  return color_at(of, position_of(of, share), theme);
}

std::int32_t heat_bands(double height, double scale) {
  return std::clamp(static_cast<std::int32_t>(height * scale / 2), 1, kMostBands);
}

void paint_heat(const HeatTable& table, HeatOf of, const View& view, const HeatPlace& place,
                Theme theme, Scene& scene) {
  const ColorTable colors(of, theme);
  const std::size_t columns = table.columns();
  const auto bands = static_cast<double>(table.bands.size());
  const bool any_several = holds_several(table);
  // Columns of a snapped grid are equal but for the two that the view cuts.
  double x = place.x + view.x_of(table.edges.front()),
         width = view.x_of(table.edges.back()) - view.x_of(table.edges.front());
  if (view.snap && columns > 3) {
    const double column = view.x_of(table.edges[2]) - view.x_of(table.edges[1]);
    x = place.x + view.x_of(table.edges[1]) - column;
    width = column * static_cast<double>(columns);
  }
  for (std::size_t b = 0; b < table.bands.size(); ++b) {
    const double y = place.y + place.height * static_cast<double>(b) / bands,
                 height = place.height / bands;
    Strip means{.x = x, .y = y, .width = width, .height = height};
    Strip marks{.x = x, .y = y + height / 2, .width = width, .height = height / 2};
    means.colors.resize(columns);
    const bool several = table.bands[b].last - table.bands[b].first > 1;
    for (std::size_t c = 0; c < columns; ++c) {
      const double mean = table.mean(b, c);
      means.colors[c] = colors.of(mean);
      if (!several || table.most(b, c) - mean < kMarked) continue;
      marks.colors.resize(columns);  // none yet: transparent
      marks.colors[c] = colors.of(table.most(b, c));
    }
    scene.strips.push_back(std::move(means));
    if (!marks.colors.empty()) scene.strips.push_back(std::move(marks));
    if (!any_several) continue;
    scene.strips.push_back({.x = place.x + view.width_px + kHeatWorstGap,
                            .y = y,
                            .width = kHeatWorst,
                            .height = height,
                            .colors = {colors.of(table.most(b))}});
  }
}

double worst_head(double end_of_map, double right) {
  constexpr double kApart = 10;
  const double end = std::min(end_of_map + kHeatWorstGap + kHeatWorst,
                              right - text_width("mean", TextSize::Small) - kApart);
  return end - text_width("worst", TextSize::Small);
}

void name_bands(const HeatSource& source, const HeatTable& table, const View& view,
                const HeatPlace& place, double right, Theme theme, Scene& scene) {
  constexpr double kApart = 13;
  const Palette& colors = palette(theme);
  const double height = place.height / static_cast<double>(table.bands.size());
  const auto every = static_cast<std::size_t>(std::max(1.0, std::ceil(kApart / height)));
  const auto text = [&](double x, double y, std::string what, Color color, Anchor anchor) {
    scene.texts.push_back({.x = x,
                           .y = y,
                           .anchor = anchor,
                           .size = TextSize::Small,
                           .color = color,
                           .text = std::move(what)});
  };
  const double left = place.x - 8;
  for (std::size_t b = 0; b < table.bands.size(); b += every) {
    // The bands from here to the next name are told of together.
    const std::size_t end = std::min(b + every, table.bands.size());
    if (static_cast<double>(end - b) * height < kApart - 1) break;
    double time = 0, ranks = 0;
    for (std::size_t i = b; i < end; ++i) {
      time += table.bands[i].time;
      ranks += table.bands[i].ranks();
    }
    const double y = place.y + height * static_cast<double>(b) + 11;
    text(left, y,
         clipped(source.ranks_text(table.bands[b].first, table.bands[end - 1].last),
                 TextSize::Small, left - 8),
         colors.text, Anchor::End);
    text(right, y, percent_text(time / (ranks * table.span())), colors.text, Anchor::End);
  }
  if (holds_several(table)) {
    text(worst_head(place.x + view.width_px, right), place.y - 6, "worst", colors.faint_text,
         Anchor::Begin);
  }
}

HeatTotals heat_totals(const HeatTable& table) {
  HeatTotals whole;
  const HeatBand* worst = nullptr;
  for (const HeatBand& band : table.bands) {
    whole.ranks += band.ranks();
    whole.mean += band.time;
    if (worst == nullptr || band.worst > worst->worst) worst = &band;
  }
  whole.mean /= whole.ranks * table.span();
  if (worst != nullptr) {
    whole.worst = worst->worst / table.span();
    whole.worst_row = worst->worst_row;
  }
  return whole;
}

bool holds_several(const HeatTable& table) {
  return std::ranges::any_of(
      table.bands, [](const HeatBand& band) { return band.last_row - band.first_row > 1; });
}

static constexpr double kScaleWidth = 220;

void heat_colors(HeatOf of, double x, double y, Theme theme, Scene& scene) {
  constexpr double kWidth = kScaleWidth, kHeight = 10;
  const Palette& colors = palette(theme);
  const bool both = of == kHeatExcess;
  Strip strip{.x = x, .y = y - 9, .width = kWidth, .height = kHeight};
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(kWidth); ++i) {
    const double at = i / (kWidth - 1);
    strip.colors.push_back(opaque(color_at(of, both ? 2 * at - 1 : at, theme)));
  }
  scene.strips.push_back(std::move(strip));
  const auto text = [&](double at, double base, std::string what, Anchor anchor) {
    scene.texts.push_back({.x = at,
                           .y = base,
                           .anchor = anchor,
                           .size = TextSize::Small,
                           .color = colors.faint_text,
                           .text = std::move(what)});
  };
  static constexpr std::array kShares{0.0, 0.1, 0.25, 0.5, 1.0};
  static constexpr std::array kExcesses{-0.5, -0.1, 0.0, 0.1, 0.5};
  const std::span<const double> marks =
      both ? std::span<const double>(kExcesses) : std::span<const double>(kShares);
  for (const double share : marks) {
    const double at = position_of(of, share);
    text(x + kWidth * (both ? (at + 1) / 2 : at), y + 14, fixed_text(share * 100, 0) + " %",
         Anchor::Middle);
  }
}

std::string heat_words(bool several) {
  return several
             ? "of a cell's time, the mean of its ranks; its lower half: the worst of them, where "
               "that has a quarter more"
             : "of a cell's time";
}

void heat_scale(HeatOf of, bool several, double x, double y, Theme theme, Scene& scene) {
  heat_colors(of, x, y, theme, scene);
  scene.texts.push_back({.x = x + kScaleWidth + 20,
                         .y = y,
                         .size = TextSize::Small,
                         .color = palette(theme).faint_text,
                         .text = heat_words(several)});
}

namespace {

class HeatFigure {
 public:
  HeatFigure(const HeatSource& source, const HeatMapOptions& options)
      : source_(source),
        trace_(source.trace()),
        options_(options),
        shown_(options.shown),
        colors_(palette(options.theme)) {}

  Scene draw() {
    const auto [begin, end] = shown_range(trace_, shown_);
    view_ = {.begin = {begin},
             .end = {end},
             .width_px =
                 std::max(50, static_cast<std::int32_t>(options_.width - kHeatLeft - kHeatRight))};
    Frame frame;
    layout_edges(frame);
    constexpr double kLeast = 240, kMost = 840;
    const RankRange ranks = source_.ranks_of(shown_.first_row, shown_.last_row);
    const auto bands =
        static_cast<double>(std::min<std::int64_t>(kMostBands, ranks.last - ranks.first));
    height_ = std::clamp(bands * 16, kLeast, kMost);
    if (bands >= 2) height_ = std::max(2.0, std::round(height_ / bands)) * bands;
    table_ = source_.table(shown_.of, frame.edges, kMostBands, ranks);
    scene_.width = options_.width;
    scene_.background = colors_.background;
    header(begin, end);
    axis(begin, end);
    const HeatPlace place{.x = kHeatLeft, .y = y_, .height = height_};
    paint_heat(table_, shown_.of, view_, place, options_.theme, scene_);
    name_bands(source_, table_, view_, place, options_.width - kHeatMargin, options_.theme, scene_);
    y_ += height_ + 24;
    heat_scale(shown_.of, holds_several(table_), kHeatLeft, y_, options_.theme, scene_);
    if (!trace_.caption.empty()) {
      y_ += 34;
      text(kHeatMargin, y_, trace_.caption, TextSize::Small, colors_.faint_text);
    } else {
      y_ += 14;
    }
    scene_.height = static_cast<std::int32_t>(std::ceil(y_ + kHeatMargin));
    return std::move(scene_);
  }

 private:
  void layout_edges(Frame& frame) {
    const std::int64_t span = view_.end.value - view_.begin.value;
    const std::int64_t count = std::min<std::int64_t>(view_.width_px, span);
    for (std::int64_t c = 0; c <= count; ++c)
      frame.edges.push_back(view_.begin.value + span / count * c + span % count * c / count);
  }
  void text(double x, double y, std::string what, TextSize size, Color color,
            Anchor anchor = Anchor::Begin) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  }
  void header(std::int64_t begin, std::int64_t end) {
    scene_.title = title_of(trace_);
    y_ = kHeatMargin + 15;
    text(kHeatMargin, y_, scene_.title, TextSize::Title, colors_.text);
    std::string line = trace_.label == TraceLabel::Predicted ? "predicted" : "measured";
    line += " · " + std::to_string(static_cast<std::int64_t>(heat_totals(table_).ranks)) +
            " ranks · one step takes " + time_text(trace_.step().value);
    if (begin != trace_.begin.value || end != trace_.end.value) {
      line += " · shown: " + time_text(begin - trace_.begin.value) + " to " +
              time_text(end - trace_.begin.value);
    }
    y_ += 20;
    text(kHeatMargin, y_, line, TextSize::Normal, colors_.faint_text);
    text(options_.width - kHeatMargin, y_,
         words_of(shown_.of) + ": " + summary_of(source_, table_, shown_.of), TextSize::Normal,
         colors_.text, Anchor::End);
  }
  void axis(std::int64_t begin, std::int64_t end) {
    y_ += 30;
    const std::int64_t step = nice_step(static_cast<double>(end - begin) * 110 / view_.width_px);
    const std::int64_t zero = trace_.begin.value;
    const double right = options_.width - kHeatMargin;
    const double heads = holds_several(table_) ? worst_head(kHeatLeft + view_.width_px, right) - 6
                                               : right - text_width("mean", TextSize::Small) - 6;
    for (std::int64_t tick = zero + (begin - zero + step - 1) / step * step; tick <= end;
         tick += step) {
      const double x = kHeatLeft + view_.x_of(tick);
      const std::string label = tick_text(tick - zero, step);
      if (x + text_width(label, TextSize::Small) / 2.0 < heads)
        text(x, y_ - 6, label, TextSize::Small, colors_.faint_text, Anchor::Middle);
      scene_.lines.push_back({.x1 = x,
                              .y1 = y_ - 3,
                              .x2 = x,
                              .y2 = y_ + height_ + 2,
                              .width = 1,
                              .color = colors_.faint_text,
                              .alpha = 60});
    }
    text(right, y_ - 6, "mean", TextSize::Small, colors_.faint_text, Anchor::End);
  }

  const HeatSource& source_;
  const Trace& trace_;
  const HeatMapOptions& options_;
  const HeatOptions& shown_;
  const Palette& colors_;
  HeatTable table_;
  View view_;
  Scene scene_;
  double y_ = 0, height_ = 0;
};

// Darker letters for more; '<' where ranks are faster than the median.
char letter_of_share(HeatOf of, double share) {
  constexpr std::string_view kRamp = " .:-=+*#%@";
  const double at = position_of(of, share);
  if (at < -0.1) return '<';
  return kRamp[std::min(kRamp.size() - 1,
                        static_cast<std::size_t>(std::max(0.0, at) * (kRamp.size() - 1) + 0.5))];
}

}  // namespace

Scene heat_map(const HeatSource& source, const HeatMapOptions& options) {
  return HeatFigure(source, options).draw();
}

std::string heat_text(const HeatSource& source, const HeatOptions& shown, std::int32_t columns,
                      std::int32_t lines) {
  const Trace& trace = source.trace();
  const auto [begin, end] = shown_range(trace, shown);
  const std::int64_t span = end - begin,
                     count = std::min<std::int64_t>(std::max(10, columns), span);
  std::vector<std::int64_t> edges;
  for (std::int64_t c = 0; c <= count; ++c)
    edges.push_back(begin + span / count * c + span % count * c / count);
  const HeatTable table =
      source.table(shown.of, edges, lines, source.ranks_of(shown.first_row, shown.last_row));
  std::size_t names = 0;
  const auto name_of = [&](const HeatBand& band) {
    return source.ranks_text(band.first, band.last);
  };
  for (const HeatBand& band : table.bands) names = std::max(names, name_of(band).size());
  std::string out = title_of(trace) + "\n" +
                    (trace.label == TraceLabel::Predicted ? "predicted" : "measured") +
                    ", one step takes " + time_text(trace.step().value) + ", each column " +
                    time_text(span / count) + "\n" + words_of(shown.of) + ": " +
                    summary_of(source, table, shown.of) + "\n";
  for (std::size_t b = 0; b < table.bands.size(); ++b) {
    std::string line = name_of(table.bands[b]);
    line.resize(names, ' ');
    line += " |";
    for (std::size_t c = 0; c < table.columns(); ++c)
      line += letter_of_share(shown.of, table.mean(b, c));
    line += "| " + share_text(shown.of, table.mean(b));
    if (table.bands[b].last - table.bands[b].first > 1 &&
        table.bands[b].last_row - table.bands[b].first_row > 1) {
      line += ", worst " + row_name(trace, {table.bands[b].worst_row}) + " " +
              share_text(shown.of, table.most(b));
    }
    out += line + "\n";
  }
  return out + "a letter is the mean of a cell: nothing, then . : - = + * # % @ up to all of it" +
         (shown.of == kHeatExcess ? " (half: twice the median); < is faster than the median\n"
                                  : "\n");
}

}  // namespace rehearse::viz
