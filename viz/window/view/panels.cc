// SPDX-License-Identifier: Apache-2.0
// Around the lanes: bar, minimap, panel, and the layer above everything.
#include <algorithm>
#include <array>
#include <cmath>

#include "viz/analysis/units_text.h"
#include "viz/picture/legend.h"
#include "viz/picture/paint.h"
#include "viz/picture/two/paint_lag.h"
#include "viz/window/describe.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {

ViewContext::ViewContext(const Session& of, const ViewState& shown)
    : session(of),
      state(shown),
      at(geometry(of, shown)),
      theme(shown.dark ? Theme::Dark : Theme::Light),
      colors(palette(theme)) {
  for (std::size_t d = 0; d < of.documents().size(); ++d)
    origins[d] = of.origin(static_cast<std::int32_t>(d), shown.alignment);
}

std::pair<double, double> ViewContext::shown_range() const {
  if (state.range) return *state.range;
  const auto [first, last] = session.extent(state.alignment);
  const double begin = std::clamp(state.begin, first, last),
               end = std::clamp(state.end, first, last);
  return end > begin ? std::pair{begin, end} : std::pair{state.begin, state.end};
}
Summary ViewContext::summary_of(std::int32_t document, double begin, double end, std::int32_t first,
                                std::int32_t last) const {
  return summary_by(session.at(document).index(), begin, end, first, last);
}
Summary ViewContext::summary_by(const TraceIndex& index, double begin, double end,
                                std::int32_t first, std::int32_t last) const {
  const Trace& trace = index.trace();
  const std::int32_t document = session.compares() && &trace == &session.at(1).trace() ? 1 : 0;
  const std::int64_t from = std::clamp(at_ns(document, begin), trace.begin.value, trace.end.value);
  const std::int64_t to = std::clamp(at_ns(document, end), from, trace.end.value);
  return summarize(index, from, to, first, last < 0 ? trace.num_rows() : last);
}

std::int64_t ViewContext::lag_scale() const {
  const LagCurve::Range& range = session.greatest_lag();
  return lag_top(std::max(std::abs(range.least + lag_shift()), std::abs(range.most + lag_shift())));
}
void add_text(Scene& to, double x, double y, std::string what, TextSize size, Color color,
              Anchor anchor) {
  to.texts.push_back(
      {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
}

void draw_bar(const ViewContext& c, Scene& scene) {
  const Trace& trace = c.session.at(0).trace();
  const std::string title = trace.title.empty() ? trace.schedule_name : trace.title;
  // The window's menus stand before the title.
  const double left = c.state.widgets ? Geometry::kMenus + 10 : 12;
  std::string line = trace.label == TraceLabel::Predicted ? "predicted " : "measured ";
  line += time_text(trace.step().value);
  if (c.session.compares()) {
    const Trace& other = c.session.at(1).trace();
    line += (other.label == TraceLabel::Predicted ? " / predicted " : " / measured ") +
            time_text(other.step().value);
    if (c.state.alignment.how != Align::Step)
      line += " · " + alignment_words(c.session, c.state.alignment);
  }
  const auto [begin, end] = c.shown_range();
  const Summary sum = c.summary_of(0, begin, end);
  const std::string shown_time = (c.state.range ? "range " : "in view ") +
                                 time_text(static_cast<std::int64_t>(end - begin)) + " · ";
  std::string bubbles = "bubbles " + percent_text(sum.bubble_ratio()), inside;
  if (c.session.compares()) {  // what both traces know
    const Summary other = c.summary_of(1, begin, end);
    const bool both = sum.inside_unknown == other.inside_unknown;
    bubbles = both ? bubbles + " / " + percent_text(other.bubble_ratio())
                   : "bubbles between ops " + percent_text(sum.share(sum.between_ops())) + " / " +
                         percent_text(other.share(other.between_ops()));
  } else if (sum.inside_ops() > 0) {
    inside = ", " + percent_text(sum.share(sum.inside_ops())) + " inside ops";
  }
  std::string live = shown_time + bubbles + inside;
  // The title has what the numbers leave; where they leave nothing the least of them stands.
  constexpr double kBetween = 16, kLeastTitle = 60, kLeastWords = 40;
  const double live_x = c.state.width - 70.0;
  const auto room_beside = [&] {
    return live_x - text_width(live, TextSize::Normal) - kBetween - left;
  };
  if (room_beside() < kLeastTitle) live = bubbles;
  const double room = room_beside();
  if (room >= kLeastTitle) {
    const std::string shown =
        clipped(title, TextSize::Title,
                std::max(kLeastTitle, room - kBetween - text_width(line, TextSize::Normal)));
    const double x = left + text_width(shown, TextSize::Title) + kBetween;
    add_text(scene, left, 21, shown, TextSize::Title, c.colors.text);
    if (left + room - x >= kLeastWords)
      add_text(scene, x, 20, clipped(line, TextSize::Normal, left + room - x), TextSize::Normal,
               c.colors.faint_text);
  }
  if (room >= 0) add_text(scene, live_x, 20, live, TextSize::Normal, c.colors.text, Anchor::End);
  add_text(scene, c.state.width - 12, 20, "? help", TextSize::Small, c.colors.faint_text,
           Anchor::End);
}

// The whole step: each row a line of pixels, as far as there is room for them.
static Scene whole_step(const ViewContext& c) {
  const Document& document = c.session.at(0);
  const Trace& trace = document.trace();
  constexpr std::int32_t kMost = 64;
  std::vector<std::int32_t> lanes;
  const std::int32_t rows = std::max(1, trace.num_rows()), lines = std::min(rows, kMost);
  for (std::int32_t i = 0; i < lines && trace.slots > 0; ++i) {
    lanes.push_back(static_cast<std::int32_t>(std::int64_t{i} * rows / lines) * trace.slots);
  }
  const auto [first, last] = c.session.extent(c.state.alignment);
  Frame frame;
  layout(c.index(0),
         {.begin = {c.at_ns(0, first)},
          .end = {std::max(c.at_ns(0, first) + 1, c.at_ns(0, last))},
          .width_px = static_cast<std::int32_t>(c.at.width),
          .snap = true},
         lanes, frame);
  Scene layer;
  layer.clip_x = c.at.left;
  layer.clip_y = c.at.minimap_y;
  layer.clip_width = c.at.width;
  layer.clip_height = c.at.minimap_height;
  const double height =
      (c.at.minimap_height - 4) / static_cast<double>(std::max<std::size_t>(1, lanes.size()));
  double y = c.at.minimap_y + 2;
  for (const LaneFrame& lane : frame.lanes) {
    paint_lane(c.index(0), c.coloring(0), frame, lane, {.x = c.at.left, .y = y, .height = height},
               c.theme, layer, Labels::None);
    y += height;
  }
  return layer;
}

void draw_minimap(const ViewContext& c, Scene& scene, SceneCache& cache) {
  const bool moved = cache.minimap.clip_x != c.at.left || cache.minimap_width != c.at.width ||
                     cache.minimap_y != c.at.minimap_y || !(cache.minimap_filter == c.state.filter);
  const auto [first, last] = c.session.extent(c.state.alignment);
  if (moved || cache.minimap_begin != first || cache.minimap_theme != c.theme ||
      cache.minimap_color_by != c.color_by(0)) {
    cache.minimap = whole_step(c);
    cache.minimap_width = c.at.width;
    cache.minimap_begin = first;
    cache.minimap_y = c.at.minimap_y;
    cache.minimap_filter = c.state.filter;
    cache.minimap_theme = c.theme;
    cache.minimap_color_by = c.color_by(0);
  }
  const double scale = c.at.width / (last - first);
  const double from = c.at.left + (std::max(first, c.state.begin) - first) * scale;
  const double to = c.at.left + (std::min(last, c.state.end) - first) * scale;
  Scene frame;
  for (const auto& [a, b] : {std::pair{c.at.left, from}, {to, c.at.left + c.at.width}}) {
    if (b <= a) continue;
    frame.rects.push_back({.x = a,
                           .y = c.at.minimap_y,
                           .width = b - a,
                           .height = c.at.minimap_height,
                           .fill = c.colors.background,
                           .alpha = 150});
  }
  frame.rects.push_back({.x = from,
                         .y = c.at.minimap_y,
                         .width = std::max(3.0, to - from),
                         .height = c.at.minimap_height,
                         .fill = c.colors.text,
                         .alpha = 0,
                         .outlined = true,
                         .outline = c.colors.text});
  scene.layers.push_back(cache.minimap);
  scene.layers.push_back(std::move(frame));
}

namespace {

// Where the time in view went: a bar per trace, and what its pieces are.
void shares(const ViewContext& c, double left, double y, Scene& scene) {
  constexpr double kBarHeight = 16;
  struct Share {
    KindStyle style;
    std::string name;
    std::array<double, 2> of{};  // per trace
    bool shown = false;
  };
  std::vector<Share> all;
  const auto [begin, end] = c.shown_range();
  add_text(scene, left, y, c.state.range ? "In the range:" : "In view:", TextSize::Normal,
           c.colors.text);
  add_text(
      scene, c.state.width - 12, y,
      "colour: " + std::string(kColorByNames[static_cast<std::size_t>(c.state.color_by)]) + " (K)",
      TextSize::Small, c.colors.faint_text, Anchor::End);
  const double width = c.state.width - left - 12;
  const std::size_t traces = c.session.documents().size();
  double bar_y = y + 10;
  for (std::size_t d = 0; d < traces; ++d, bar_y += kBarHeight + 2) {
    const auto document = static_cast<std::int32_t>(d);
    const Summary sum = c.summary_by(c.index(document), begin, end);
    double x = left;
    for (const LegendEntry& entry : legend(sum, c.coloring(document), c.theme)) {
      scene.rects.push_back({.x = x,
                             .y = bar_y,
                             .width = width * entry.share,
                             .height = kBarHeight,
                             .fill = entry.style.fill,
                             .hatch = entry.style.hatch,
                             .ink = entry.style.ink});
      x += width * entry.share;
      auto known = std::ranges::find(all, entry.name, &Share::name);
      if (known == all.end()) known = all.insert(known, {entry.style, entry.name});
      known->of[d] = entry.share;
      known->shown = known->shown || entry.shown;
    }
  }
  double entry_x = left, entry_y = bar_y + 18;
  const auto entry_of = [&](const Rect& swatch, std::string label) {
    label = clipped(label, TextSize::Small, width - 24);
    const double needed = 24 + text_width(label, TextSize::Small) + 16;
    if (entry_x + needed > c.state.width - 12) {
      entry_x = left;
      entry_y += 18;
    }
    Rect placed = swatch;
    placed.x = entry_x;
    placed.y = entry_y - 10;
    placed.width = 18;
    placed.height = 12;
    scene.rects.push_back(placed);
    add_text(scene, entry_x + 24, entry_y, std::move(label), TextSize::Small, c.colors.text);
    entry_x += needed;
  };
  for (const Share& entry : all) {
    if (!entry.shown) continue;
    std::string label = entry.name + " " + percent_text(entry.of[0]);
    if (traces == 2) label += " / " + percent_text(entry.of[1]);
    entry_of({.fill = entry.style.fill, .hatch = entry.style.hatch, .ink = entry.style.ink},
             std::move(label));
  }
  const std::vector<KindStyle> shades = c.coloring(0).shades(c.theme);
  for (std::size_t chunk = 0; chunk < shades.size(); ++chunk) {
    entry_of({.fill = shades[chunk].fill}, (chunk == 0 ? "chunk " : "") + std::to_string(chunk));
  }
  if (c.state.lags && traces == 2 && c.session.corresponds()) {
    entry_of({.fill = lag_color(true)},
             c.name_of(1) + " is behind (lag, to " + time_text(c.lag_scale()) + ")");
    entry_of({.fill = lag_color(false)}, "ahead");
  }
  const Trace& trace = c.session.at(0).trace();
  if (!c.state.memory || trace.memory_time.empty()) return;
  entry_x = left;
  entry_y += 18;
  for (const LegendEntry& part : c.session.at(0).memory_parts())
    entry_of({.fill = part.style.fill}, part.name);
}

void tooltip(const ViewContext& c, Scene& layer) {
  const Hit found = hit(c.session, c.state, c.at, c.state.mouse_x, c.state.mouse_y);
  std::vector<Fact> facts;
  if (found.op) {
    facts = describe_op(c.session, found.op, false);
  } else if (found.idle >= 0) {
    facts = describe_bubble(c.session.at(found.lane->document), found.idle);
  }
  const double time = std::floor(c.at.time_at(c.state, c.state.mouse_x));
  const auto since = [&](std::int32_t document) {  // its step's begin
    return c.at_ns(document, time) - c.session.at(document).trace().begin.value;
  };
  if (found.memory != nullptr) {
    const std::int32_t d = found.memory->document;
    facts = describe_memory(c.session.at(d), {found.memory->row}, since(d));
  } else if (found.link != nullptr) {
    const std::int32_t d = found.link->document;
    facts = describe_link(c.session.at(d), found.link->link, since(d));
  } else if (found.lag != nullptr) {
    facts = describe_lag(c.session, c.state.alignment, {found.lag->row}, c.at_ns(1, time));
  } else if (const auto cell =
                 heat_cell(c.session, c.state, c.at, found, c.state.mouse_x, c.state.mouse_y)) {
    facts = describe_cell(c.session, *cell);
  }
  draw_facts(c, layer, facts);
}

}  // namespace

void draw_facts(const ViewContext& c, Scene& layer, std::span<const Fact> facts) {
  if (facts.empty()) return;
  double name_width = 0, value_width = 0;
  for (const Fact& fact : facts) {
    name_width = std::max(name_width, static_cast<double>(text_width(fact.name, TextSize::Small)));
    value_width =
        std::max(value_width, static_cast<double>(text_width(fact.value, TextSize::Small)));
  }
  const double width = name_width + value_width + 34,
               height = 16.0 * static_cast<double>(facts.size()) + 12;
  const double x = std::min(c.state.mouse_x + 14, c.state.width - width - 4);
  const double y = c.state.mouse_y + 18 + height > c.state.height ? c.state.mouse_y - height - 8
                                                                  : c.state.mouse_y + 18;
  draw_box(c, layer, x, y, width, height);
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const double line = y + 17 + 16 * static_cast<double>(i);
    add_text(layer, x + 10, line, facts[i].name, TextSize::Small,
             i == 0 ? c.colors.text : c.colors.faint_text);
    add_text(layer, x + 24 + name_width, line, facts[i].value, TextSize::Small, c.colors.text);
  }
}

static void draw_selected(const ViewContext& c, double middle, double y, Scene& scene) {
  const std::vector<Fact> facts = describe_op(c.session, c.state.selected, true);
  add_text(scene, 12, y, facts[0].name + ", " + facts[0].value, TextSize::Normal, c.colors.text);
  // In two columns; of a narrow window in one, as far as there is room.
  const std::size_t half = c.at.narrow ? facts.size() : facts.size() / 2;
  const double width = c.at.narrow ? middle : middle / 2;
  for (std::size_t i = 1; i < facts.size(); ++i) {
    const double x = i <= half ? 12 : 12 + width;
    const double line = y + 18 * static_cast<double>(i <= half ? i : i - half);
    if (c.at.narrow && line > c.at.legend_y - 24) return;
    add_text(scene, x, line, facts[i].name, TextSize::Small, c.colors.faint_text);
    add_text(scene, x + 80, line, clipped(facts[i].value, TextSize::Small, width - 96),
             TextSize::Small, c.colors.text);
  }
}

// What a first look needs, of what is shown; ? has all of it.
static std::vector<std::string_view> hints(const ViewContext& c) {
  if (c.state.heats) {
    return {
        "A line is a rank, or the mean of several; below it, and at the right, the worst of them.",
        "The mouse over a cell says its share, the worst rank and what that one does.",
        "Shift + Y: idle time, one cause of it, or what ops take beyond the median.",
        "Ctrl + wheel zooms in time, Ctrl + Shift + wheel in ranks; the wheel moves along them.",
        "A click selects what the worst rank does; a double click goes to its lane.",
        "Shift + T: the ranks that others waited for. Y or Escape: back to the lanes."};
  }
  if (c.session.compares()) {
    return {
        "The mouse over a bubble says why it is there, and whom the rank waits for.",
        "W S A D or Ctrl + wheel: closer, farther, left, right. Home: all of it. U: back.",
        c.session.corresponds()
            ? "Q: what begins together: the steps, the selected op, or the clocks."
            : "Q: the steps begin together, or lie on one clock.",
        c.session.corresponds()
            ? "Below each rank: how far the second trace is behind, or ahead (Shift + L)."
            : "/ finds ops by name; Ctrl + F asks for kinds, ranks, micro-batches. P pins a row.",
        c.session.corresponds()
            ? "Shift + D: colours by the difference. E: the causes from one step to the other."
            : "C: the critical path. K: other colours. E: the causes from one step to the other.",
        "Ctrl and + or -: the size of text. X: light or dark. Ctrl + E: this view as a file."};
  }
  return {"The mouse over a bubble says why it is there, and whom the rank waits for.",
          "W S A D or Ctrl + wheel: closer, farther, left, right. Home: all of it. U: back.",
          "C: the critical path. K: other colours. L: links. Click a memory curve: what is alive.",
          "/ finds ops by name; Ctrl + F asks for kinds, ranks, micro-batches. P pins a row.",
          "Y: all ranks as a heat map. The tables above are sorted by a click on a head.",
          "Ctrl and + or -: the size of text. X: light or dark. Ctrl + E: this view as a file."};
}

static void draw_hints(const ViewContext& c, double middle, double y, Scene& scene) {
  add_text(scene, 12, y, c.state.heats ? "Click a cell." : "Click an op or a bubble.",
           TextSize::Normal, c.colors.faint_text);
  if (c.state.critical) {
    const CriticalPath& path = c.session.at(0).critical();
    add_text(scene, 12, y + 20,
             "Critical path: " + std::to_string(path.ops.size()) + " ops, " +
                 time_text(path.in_ops) + " in ops, " + time_text(path.waiting) + " waiting",
             TextSize::Small, c.colors.text);
    return;
  }
  double line = y + 22;
  for (const std::string_view hint : hints(c)) {
    // Of a narrow window in several lines, as far as there is room.
    const std::vector<std::string> lines =
        c.at.narrow ? wrapped(hint, TextSize::Small, middle - 24)
                    : std::vector{clipped(hint, TextSize::Small, middle - 24)};
    const double end = line + 18 * static_cast<double>(lines.size() - 1);
    if (c.at.narrow && end > c.at.legend_y - 24) return;
    for (const std::string& text : lines) {
      add_text(scene, 12, line, text, TextSize::Small, c.colors.faint_text);
      line += 18;
    }
  }
}

// Below the lanes: the selected op or a table on the left, where the time in view went on the
// right; of a narrow window below.
void draw_panel(const ViewContext& c, Scene& scene, SceneCache& cache) {
  scene.plates.push_back({.y = c.at.panel_y,
                          .width = static_cast<double>(c.state.width),
                          .height = c.at.panel_height,
                          .fill = c.colors.lane});
  const double y = c.at.panel_y + c.at.tabs_height + 18;
  draw_tabs(c, scene);
  if (c.state.table != TableKind::None) {
    draw_table(c, cache.table.of(c.session, c.state), scene);
  } else if (c.state.selected) {
    draw_selected(c, c.at.panel_middle, y, scene);
  } else {
    draw_hints(c, c.at.panel_middle, y, scene);
  }
  if (c.state.heats) {
    draw_heat_legend(c, c.at.legend_x, c.at.legend_y, scene, cache);
  } else {
    shares(c, c.at.legend_x, c.at.legend_y, scene);
  }
}

// Tooltip, boxes and help: above everything.
Scene top_layer(const ViewContext& c) {
  Scene layer;
  if (c.state.drag == Drag::None && !c.state.help && !c.state.inside && !c.state.experts &&
      !c.state.memory_at)
    tooltip(c, layer);
  if (c.state.range && !c.state.help) {
    const double x = std::clamp(c.x_of((c.state.range->first + c.state.range->second) / 2),
                                c.at.left + 60, c.at.left + c.at.width - 60);
    draw_box(c, layer, x - 60, c.at.top + 4, 120, 20);
    add_text(layer, x, c.at.top + 18,
             time_text(std::llround(c.state.range->second - c.state.range->first)), TextSize::Small,
             c.colors.text, Anchor::Middle);
  }
  const bool inside = c.state.inside && c.state.selected;
  if (c.state.memory_at || inside || c.state.experts || c.state.help) {  // what is behind is pale
    layer.rects.push_back({.width = static_cast<double>(c.state.width),
                           .height = static_cast<double>(c.state.height),
                           .fill = c.colors.background,
                           .alpha = 150});
  }
  if (c.state.memory_at) draw_memory_box(c, layer);
  if (inside) draw_inside(c, layer);
  if (c.state.experts) draw_expert_box(c, layer);
  if (c.state.help) draw_help(c, layer);
  const std::string& said = c.state.refused.empty() ? c.state.notice : c.state.refused;
  if (!said.empty()) {
    const double width = text_width(said, TextSize::Normal) + 32.0;
    draw_box(c, layer, (c.state.width - width) / 2, c.at.panel_y - 40, width, 28);
    add_text(layer, c.state.width / 2.0, c.at.panel_y - 21, said, TextSize::Normal, c.colors.text,
             Anchor::Middle);
  }
  return layer;
}

}  // namespace rehearse::viz
