// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/ranks/straggler_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

constexpr double kChartMargin = 16, kChartRow = 22, kBarHeight = 14;

std::string chart_title(const Trace& trace) {
  if (!trace.title.empty()) return trace.title;
  return trace.schedule_name.empty() ? "timeline" : trace.schedule_name;
}

std::string chart_heading(const Trace& trace, const std::vector<WaitedFor>& ranks) {
  std::int64_t all = 0;
  for (const WaitedFor& rank : ranks) all += rank.time();
  return "others waited " + time_text(all) + " of ranks' time for " +
         std::to_string(ranks.size()) + " of " + std::to_string(trace.rows.size()) +
         (trace.rows.size() == 1 ? " row" : " rows") + "; filling and draining not counted";
}

std::string cut_words(std::size_t shown, std::size_t all) {
  return "the " + std::to_string(shown) + " that most was waited for, of " + std::to_string(all);
}

}  // namespace

StragglerWords straggler_words(const Trace& trace, const WaitedFor& rank) {
  std::int64_t ranks = 0;
  for (const TraceRow& row : trace.rows) ranks += row.multiplicity;
  const double all = static_cast<double>(ranks) * static_cast<double>(trace.step().value);
  StragglerWords words{.rank = row_name(trace, rank.row),
                       .time = time_text(rank.time()),
                       .share = percent_text(all > 0 ? static_cast<double>(rank.time()) / all : 0)};
  if (!rank.op) return words;
  words.longest = time_text(rank.longest);
  words.op = op_name(trace, rank.op);
  words.waiter = op_name(trace, rank.waiter) + " on " + row_name(trace, trace.row_of(rank.waiter));
  words.cause = kIdleCauseNames[static_cast<std::size_t>(rank.cause)];
  return words;
}

std::string no_stragglers(const Trace& trace) {
  return knows_waits(trace) ? "no rank waited for another one between its ops"
                            : "this trace does not know what waited for what";
}

Scene straggler_chart(const Trace& trace, const std::vector<WaitedFor>& ranks,
                      const StragglerOptions& options) {
  const Palette& colors = palette(options.theme);
  Scene scene{.width = options.width, .background = colors.background, .title = chart_title(trace)};
  double y = kChartMargin + 15;
  const auto text = [&](double x, std::string what, TextSize size, Color color,
                        Anchor anchor = Anchor::Begin) {
    scene.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  };
  text(kChartMargin, scene.title, TextSize::Title, colors.text);
  y += 20;
  const bool none = ranks.empty();
  text(kChartMargin,
       std::string(trace.label == TraceLabel::Predicted ? "predicted" : "measured") + " · " +
           (none ? no_stragglers(trace) : chart_heading(trace, ranks)),
       TextSize::Normal, colors.faint_text);
  if (none) {
    scene.height = static_cast<std::int32_t>(y + kChartMargin);
    return scene;
  }
  const std::size_t shown = std::min(options.most, ranks.size());
  std::vector<StragglerWords> words;
  for (std::size_t i = 0; i < shown; ++i) words.push_back(straggler_words(trace, ranks[i]));
  // Columns as wide as their widest words; the bars have the rest.
  const std::array<std::pair<std::string_view, std::string StragglerWords::*>, 7> columns{
      {{"waited for", &StragglerWords::rank},
       {"others waited", &StragglerWords::time},
       {"of all time", &StragglerWords::share},
       {"longest", &StragglerWords::longest},
       {"for its op", &StragglerWords::op},
       {"by", &StragglerWords::waiter},
       {"cause", &StragglerWords::cause}}};
  constexpr std::size_t kBarsAfter = 2;
  constexpr double kApart = 18, kMostColumn = 240;
  std::array<double, 7> width{};
  double taken = 2 * kChartMargin;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    width[k] = text_width(columns[k].first, TextSize::Small);
    for (const StragglerWords& line : words)
      width[k] = std::max<double>(width[k], text_width(line.*columns[k].second, TextSize::Small));
    width[k] = std::min(width[k], kMostColumn);
    taken += width[k] + kApart;
  }
  const double bars = std::max(60.0, options.width - taken - kApart);
  std::array<double, 7> left{};
  double x = kChartMargin, bars_x = 0;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    left[k] = x;
    x += width[k] + kApart;
    if (k != kBarsAfter) continue;
    bars_x = x;
    x += bars + kApart;
  }
  const auto right_bound = [](std::size_t k) { return k >= 1 && k <= 3; };  // numbers
  y += 30;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    text(right_bound(k) ? left[k] + width[k] : left[k], std::string(columns[k].first),
         TextSize::Small, colors.faint_text, right_bound(k) ? Anchor::End : Anchor::Begin);
  }
  const double most = std::max<double>(1, static_cast<double>(ranks[0].time()));
  std::array<bool, kNumIdleCauses> seen{};
  for (std::size_t i = 0; i < shown; ++i) {
    y += kChartRow;
    for (std::size_t k = 0; k < columns.size(); ++k) {
      text(right_bound(k) ? left[k] + width[k] : left[k],
           clipped(words[i].*columns[k].second, TextSize::Small, width[k]), TextSize::Small,
           colors.text, right_bound(k) ? Anchor::End : Anchor::Begin);
    }
    double at = bars_x;
    for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
      if (!WaitedFor::counts(c) || ranks[i].causes[c] == 0) continue;
      seen[c] = true;
      const KindStyle style = style_of(kind_of(static_cast<IdleCause>(c)), options.theme);
      const double wide = bars * static_cast<double>(ranks[i].causes[c]) / most;
      scene.rects.push_back({.x = at,
                             .y = y - kBarHeight + 3,
                             .width = std::max(wide, 0.5),
                             .height = kBarHeight,
                             .fill = style.fill,
                             .hatch = style.hatch,
                             .ink = style.ink,
                             .outlined = wide >= 3,
                             .outline = style.ink});
      at += wide;
    }
  }
  y += kChartRow + 8;
  x = kChartMargin;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!seen[c]) continue;
    const KindStyle style = style_of(kind_of(static_cast<IdleCause>(c)), options.theme);
    scene.rects.push_back({.x = x,
                           .y = y - 10,
                           .width = 18,
                           .height = 12,
                           .fill = style.fill,
                           .hatch = style.hatch,
                           .ink = style.ink,
                           .outlined = true,
                           .outline = style.ink});
    text(x + 24, std::string(style.name), TextSize::Small, colors.text);
    x += 24 + text_width(style.name, TextSize::Small) + 18;
  }
  if (shown < ranks.size())
    text(options.width - kChartMargin, cut_words(shown, ranks.size()), TextSize::Small,
         colors.faint_text, Anchor::End);
  scene.height = static_cast<std::int32_t>(std::ceil(y + kChartMargin));
  return scene;
}

std::string stragglers_text(const Trace& trace, const std::vector<WaitedFor>& ranks,
                            std::size_t most) {
  std::string out = chart_title(trace) + "\n";
  if (ranks.empty()) return out + no_stragglers(trace) + "\n";
  out += chart_heading(trace, ranks) + "\n";
  const std::size_t shown = std::min(most, ranks.size());
  std::vector<StragglerWords> words{{.rank = "waited for",
                                     .time = "others waited",
                                     .share = "of all time",
                                     .longest = "longest",
                                     .op = "for its op",
                                     .waiter = "by",
                                     .cause = "cause"}};
  for (std::size_t i = 0; i < shown; ++i) words.push_back(straggler_words(trace, ranks[i]));
  constexpr std::array kFields{&StragglerWords::rank,    &StragglerWords::time,
                               &StragglerWords::share,   &StragglerWords::longest,
                               &StragglerWords::op,      &StragglerWords::waiter,
                               &StragglerWords::cause};
  std::array<std::size_t, kFields.size()> width{};
  const auto letters = [](const std::string& text) {  // of UTF-8
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  };
  for (const StragglerWords& line : words) {
    for (std::size_t k = 0; k < kFields.size(); ++k)
      width[k] = std::max(width[k], letters(line.*kFields[k]));
  }
  for (const StragglerWords& line : words) {
    std::string row;
    for (std::size_t k = 0; k < kFields.size(); ++k) {
      const std::string& cell = line.*kFields[k];
      const std::string space(width[k] - letters(cell), ' ');
      const bool number = k >= 1 && k <= 3;
      row += (k == 0 ? "" : "  ") + (number ? space + cell : cell + space);
    }
    out += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  if (shown < ranks.size()) out += cut_words(shown, ranks.size()) + "\n";
  return out;
}

}  // namespace rehearse::viz
