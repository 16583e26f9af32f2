// SPDX-License-Identifier: Apache-2.0
#include "viz/window/view/scene.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/paint.h"
#include "viz/picture/paint_curves.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/picture/two/paint_lag.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

class Composer {
 public:
  Composer(const ViewContext& context, SceneCache& cache) : c(context), cache_(cache) {}

  Scene draw() {
    scene_.width = c.state.width;
    scene_.height = c.state.height;
    scene_.scale = c.state.scale();
    scene_.background = c.colors.background;
    scene_.title = "rehearse";
    std::array<Scene, 2> lanes = lane_layers();
    Scene over = overlay_layer();
    draw_bar(c, scene_);
    draw_minimap(c, scene_, cache_);
    axis();
    if (!c.state.widgets) draw_fields(c, scene_);
    for (const bool pinned : {false, true}) row_labels(pinned);
    if (c.state.heats) draw_heats(c, scene_, cache_);
    draw_panel(c, scene_, cache_);
    for (Scene& layer : lanes) scene_.layers.push_back(std::move(layer));
    scene_.layers.push_back(std::move(over));
    scene_.layers.push_back(top_layer(c));
    return std::move(scene_);
  }

 private:
  // Bound by the lanes, or by those of one band of them.
  Scene bounded() const { return bounded(c.at.top, c.at.bottom); }
  Scene bounded(bool pinned) const {
    return pinned ? bounded(c.at.top, c.at.pin_bottom) : bounded(c.at.pin_bottom, c.at.bottom);
  }
  Scene bounded(double top, double bottom) const {
    Scene layer;
    layer.clip_x = c.at.left;
    layer.clip_y = top;
    layer.clip_width = c.at.width;
    layer.clip_height = bottom - top;
    return layer;
  }
  // Whether a part of the rows that are pinned, or that are not, can be seen.
  bool in_sight(bool pinned, double y, double height) const {
    return pinned ? y < c.at.pin_bottom : y < c.at.bottom && y + height > c.at.pin_bottom;
  }

  View view_of(std::int32_t document) const {
    const std::int64_t origin = c.origins[static_cast<std::size_t>(document)];
    const auto begin = origin + static_cast<std::int64_t>(std::floor(c.state.begin));
    const auto end = origin + static_cast<std::int64_t>(std::ceil(c.state.end));
    return {.begin = {begin},
            .end = {std::max(begin + 1, end)},
            .width_px = static_cast<std::int32_t>(c.at.width),
            .snap = true};
  }

  // Rows that are not pinned, and those that are.
  std::array<Scene, 2> lane_layers() {
    std::array<Scene, 2> layers{bounded(false), bounded(true)};
    cache_.frames.resize(c.session.documents().size());
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(c.session.documents().size()); ++d)
      lanes_of(d, layers);
    for (const RowSpot& row : c.at.rows) {
      if (row.lag_y >= 0 && in_sight(row.pinned, row.lag_y, c.at.lag_height)) lag(row, layers);
      if (row.memory_y < 0 || !in_sight(row.pinned, row.memory_y, c.at.memory_height)) continue;
      const Document& document = c.session.at(row.document);
      paint_memory(document.trace(), {row.row}, document.memory(row.row), frame_of(row.document),
                   {.x = c.at.left, .y = row.memory_y, .height = c.at.memory_height}, c.theme,
                   layers[row.pinned ? 1 : 0]);
    }
    for (const LinkSpot& link : c.at.links) {
      if (link.link < 0 || !in_sight(false, link.y, c.at.link_height)) continue;
      paint_link(c.session.at(link.document).link(link.link), frame_of(link.document),
                 {.x = c.at.left, .y = link.y, .height = c.at.link_height - 2}, c.theme, layers[0]);
    }
    if (!c.state.pinned.empty()) {
      const double y = c.at.pin_bottom - 1;
      layers[1].lines.push_back({.x1 = c.at.left,
                                 .y1 = y,
                                 .x2 = c.at.left + c.at.width,
                                 .y2 = y,
                                 .width = 2,
                                 .color = c.colors.accent});
    }
    return layers;
  }

  void lanes_of(std::int32_t d, std::array<Scene, 2>& layers) {
    std::vector<std::int32_t> lanes;
    std::vector<const LaneSpot*> spots;
    for (const LaneSpot& spot : c.at.lanes) {
      if (spot.document != d || !in_sight(spot.pinned, spot.y, spot.height)) continue;
      lanes.push_back(spot.lane);
      spots.push_back(&spot);
    }
    Frame& frame = cache_.frames[static_cast<std::size_t>(d)];
    layout(c.index(d), view_of(d), lanes, frame);
    if (!c.state.causes) hide_causes(frame);
    const bool errors = c.color_by(d) == ColorBy::Difference;
    for (std::size_t i = 0; i < spots.size(); ++i) {
      Scene& layer = layers[spots[i]->pinned ? 1 : 0];
      paint_lane(c.index(d), c.coloring(d), frame, frame.lanes[i],
                 {.x = c.at.left, .y = spots[i]->y, .height = spots[i]->height}, c.theme, layer,
                 errors ? Labels::Bubbles : Labels::All);
      if (errors) label_errors(frame, frame.lanes[i], *spots[i], layer);
    }
  }

  void lag(const RowSpot& row, std::array<Scene, 2>& layers) const {
    const Frame& frame = frame_of(1);
    paint_lag(c.session.lag(row.row), frame.view, frame.edges,
              {.x = c.at.left,
               .y = row.lag_y,
               .height = c.at.lag_height,
               .top = c.lag_scale(),
               .shift = c.lag_shift()},
              c.theme, layers[row.pinned ? 1 : 0]);
  }

  const Frame& frame_of(std::int32_t document) const {
    return cache_.frames[static_cast<std::size_t>(document)];
  }

  static void hide_causes(Frame& frame) {
    for (LaneFrame& lane : frame.lanes) lane.idle.any = false;
    for (Box& box : frame.boxes) {
      if (box.idle) box.end = box.begin;  // of no width: not drawn
    }
  }

  // How much longer or shorter each op is than in the first trace, in words; its colour says it
  // too.
  void label_errors(const Frame& frame, const LaneFrame& lane, const LaneSpot& spot, Scene& layer) {
    const Trace& trace = c.session.at(1).trace();
    const Trace& other = c.session.at(0).trace();
    const Coloring& coloring = c.coloring(1);
    for (const Box& box : frame.boxes_of(lane)) {
      if (box.idle || box.kind == Coloring::kNotKept || spot.height < 11) continue;
      const auto i = static_cast<std::size_t>(box.item);
      const OpId same = c.session.counterpart({1, {box.item}});
      if (!same) continue;
      const std::int64_t here = trace.end_ns[i] - trace.start_ns[i],
                         there = other.end_ns[same.index()] - other.start_ns[same.index()];
      const double error =
          there > 0 ? static_cast<double>(here) / static_cast<double>(there) - 1 : 0;
      const double x = c.at.left + frame.view.x_of(box.begin),
                   end = c.at.left + frame.view.x_of(box.end);
      const std::string label = (error >= 0 ? "+" : "") + percent_text(error);
      if (text_width(label, TextSize::Small) + 4 > end - x) continue;
      add_text(layer, (x + end) / 2, spot.y + spot.height / 2 + 4, label, TextSize::Small,
               text_on(coloring.style(box.kind, c.theme).fill), Anchor::Middle);
    }
  }

  // Selection, dependencies, critical path, range, scrubber: above the lanes.
  Scene overlay_layer() {
    Scene layer = bounded();
    if (c.state.critical) critical(layer);
    if (c.state.selected) dependencies(layer);
    if (!c.state.range) hovered_bubble(layer);
    if (c.state.range) {
      const double x = c.x_of(c.state.range->first), end = c.x_of(c.state.range->second);
      layer.rects.push_back({.x = x,
                             .y = c.at.top,
                             .width = end - x,
                             .height = c.at.bottom - c.at.top,
                             .fill = c.colors.text,
                             .alpha = 28});
      for (const double edge : {x, end}) {
        layer.lines.push_back({.x1 = edge,
                               .y1 = c.at.top,
                               .x2 = edge,
                               .y2 = c.at.bottom,
                               .width = 1,
                               .color = c.colors.text,
                               .alpha = 150});
      }
    }
    if (c.state.play) {
      const double x = c.x_of(*c.state.play);
      layer.lines.push_back({.x1 = x,
                             .y1 = c.at.top,
                             .x2 = x,
                             .y2 = c.at.bottom,
                             .width = 1.5,
                             .color = c.colors.accent});
    }
    return layer;
  }

  // Where a lane is, by document and lane; null: not shown.
  const LaneSpot* spot_of(std::int32_t document, std::int32_t lane) {
    if (spots_.empty()) {
      spots_.resize(c.session.documents().size());
      for (const LaneSpot& spot : c.at.lanes) {
        auto& of = spots_[static_cast<std::size_t>(spot.document)];
        of.resize(static_cast<std::size_t>(c.session.at(spot.document).trace().num_lanes()));
        of[static_cast<std::size_t>(spot.lane)] = &spot;
      }
    }
    const auto& of = spots_[static_cast<std::size_t>(document)];
    return of.empty() ? nullptr : of[static_cast<std::size_t>(lane)];
  }
  struct Place {
    double begin = 0, end = 0, y = 0, height = 0;
    bool shown = false;
  };
  // An op whose lane is folded away stands at the lower edge of its rank's compute lane.
  Place place_of(OpRef op) {
    const Trace& trace = c.session.at(op.document).trace();
    const std::int32_t row = trace.row_of(op.op).value;
    const LaneSpot* spot = spot_of(op.document, row * trace.slots + trace.class_of(op.op).slot);
    const bool folded = spot == nullptr;
    if (folded) spot = spot_of(op.document, row * trace.slots);
    if (spot == nullptr) return {};
    return {c.x_of(c.since(op.document, trace.start_ns[op.op.index()])),
            c.x_of(c.since(op.document, trace.end_ns[op.op.index()])),
            folded ? spot->y + spot->height : spot->y, folded ? 0 : spot->height, true};
  }

  // A line with a head, from an op's end (a SEND's begin: its RECV begins with it) to an op.
  void arrow(std::int32_t document, const Arrow& arrow, double width, Color color,
             std::uint8_t alpha, double height, Scene& layer) {
    const Place from = place_of({document, arrow.from}), to = place_of({document, arrow.to});
    if (!from.shown || !to.shown) return;
    const bool together = arrow.kind != ArrowKind::Wait;
    const double x1 = together ? std::min(from.begin, to.begin) : from.end,
                 y1 = from.y + from.height * height,
                 x2 = together ? std::max(to.end, from.begin) : to.begin,
                 y2 = to.y + to.height * height;
    const double right = c.at.left + c.at.width;
    if ((x1 < c.at.left && x2 < c.at.left) || (x1 > right && x2 > right)) return;
    const auto line = [&](double ax, double ay, double bx, double by) {
      layer.lines.push_back(
          {.x1 = ax, .y1 = ay, .x2 = bx, .y2 = by, .width = width, .color = color, .alpha = alpha});
    };
    line(x1, y1, x2, y2);
    const double dx = x2 - x1, dy = y2 - y1, length = std::hypot(dx, dy);
    constexpr double kHeadline = 8, kSpread = 0.45;  // [px]; of the head's half width to its length
    if (length < kHeadline) return;
    const double ux = dx / length * kHeadline, uy = dy / length * kHeadline;
    line(x2, y2, x2 - ux - uy * kSpread, y2 - uy + ux * kSpread);
    line(x2, y2, x2 - ux + uy * kSpread, y2 - uy - ux * kSpread);
  }

  void critical(Scene& layer) {
    constexpr double kPathHeight = 0.85;  // of a lane: below the labels
    constexpr Color kLight{255, 240, 60}, kDarkLine{190, 20, 90};
    const Color color = c.state.dark ? kLight : kDarkLine;
    const Document& document = c.session.at(0);
    const Trace& trace = document.trace();
    const double right = c.at.left + c.at.width;
    for (const OpId op : document.critical().ops) {
      if (c.since(0, trace.end_ns[op.index()]) < c.state.begin) continue;
      const Place place = place_of({0, op});
      if (!place.shown || place.begin > right) continue;
      const double y = place.y + place.height * kPathHeight;
      layer.lines.push_back(
          {.x1 = place.begin, .y1 = y, .x2 = place.end, .y2 = y, .width = 2.5, .color = color});
    }
    for (const Arrow& one : document.critical_arrows()) {
      if (c.since(0, trace.end_ns[one.to.index()]) < c.state.begin) continue;
      if (c.since(0, trace.start_ns[one.from.index()]) > c.state.end) break;
      if (trace.row_of(one.from) == trace.row_of(one.to) && one.kind == ArrowKind::Wait &&
          trace.class_of(one.from).slot == trace.class_of(one.to).slot) {
        continue;  // along its own lane
      }
      arrow(0, one, 1.5, color, 220, kPathHeight, layer);
    }
  }

  // What the selected op waited for, and what that waited for, paler with each step; bright what
  // came last, with the ways between ranks.
  void dependencies(Scene& layer) {
    constexpr int kSteps = 6;
    constexpr std::size_t kMost = 300;
    const std::int32_t d = c.state.selected.document;
    const Document& document = c.session.at(d);
    const Trace& trace = document.trace();
    const Causality& causes = document.causality();
    std::vector<std::int32_t> now{causes.node_of(c.state.selected.op)};
    std::vector<std::int32_t> seen = now;
    for (int step = 0; step < kSteps && !now.empty() && seen.size() < kMost; ++step) {
      const auto alpha = static_cast<std::uint8_t>(step == 0 ? 150 : 110 / step);
      std::vector<std::int32_t> next;
      for (const std::int32_t node : now) {
        for (const Arrow& one : match_arrows(trace, causes, {causes.members(node)[0]}))
          arrow(d, one, 1, color_of(OpKind::Send), alpha, 0.5, layer);
        for (const std::int32_t member : causes.members(node)) {
          causes.for_each_before_op({member}, [&](OpId op) {
            arrow(d, {op, {member}, ArrowKind::Wait}, 1, c.colors.text, alpha, 0.5, layer);
            const std::int32_t other = causes.node_of(op);
            if (seen.size() < kMost && std::ranges::find(seen, other) == seen.end()) {
              seen.push_back(other);
              next.push_back(other);
            }
          });
        }
      }
      now = std::move(next);
    }
    strong_arrows(d, arrows_of(trace, causes, c.state.selected.op), layer);
    const Place place = place_of(c.state.selected);
    if (!place.shown) return;
    for (const double around : {2.0, 1.0}) {
      outline(place.begin - around, place.y - around,
              std::max(2.0, place.end - place.begin) + 2 * around, place.height + 2 * around,
              layer);
    }
  }
  void strong_arrows(std::int32_t document, const std::vector<Arrow>& arrows, Scene& layer) {
    for (const Arrow& one : arrows) {
      arrow(document, one, 2, one.kind == ArrowKind::Wait ? c.colors.text : color_of(OpKind::Send),
            255, 0.5, layer);
    }
  }
  void outline(double x, double y, double width, double height, Scene& layer) {
    layer.rects.push_back({.x = x,
                           .y = y,
                           .width = width,
                           .height = height,
                           .fill = c.colors.text,
                           .alpha = 0,
                           .outlined = true,
                           .outline = c.colors.text});
  }

  // The bubble under the mouse, whole, and the way from the op that it waits for.
  void hovered_bubble(Scene& layer) {
    const Hit found = hit(c.session, c.state, c.at, c.state.mouse_x, c.state.mouse_y);
    if (found.idle < 0 || c.state.drag != Drag::None) return;
    const std::int32_t d = found.lane->document;
    const Document& document = c.session.at(d);
    const Trace& trace = document.trace();
    const Bubble bubble = bubble_at(trace, document.causality(), found.idle);
    if (bubble.op) strong_arrows(d, arrows_of(trace, document.causality(), bubble.op), layer);
    const double x = c.x_of(c.since(d, bubble.begin)), end = c.x_of(c.since(d, bubble.end));
    outline(x, found.lane->y, std::max(2.0, end - x), found.lane->height, layer);
  }

  void axis() {
    const double span = c.state.end - c.state.begin;
    const std::int64_t step = nice_step(span * 110 / c.at.width);
    auto tick =
        static_cast<std::int64_t>(std::ceil(c.state.begin / static_cast<double>(step))) * step;
    const std::string_view head = c.state.heats ? "mean" : "idle";
    const double right = c.state.width - 12.0;
    const double heads = (c.state.heats ? worst_head(c.at.left + c.at.width, right)
                                        : right - text_width(head, TextSize::Small)) -
                         6;
    for (; static_cast<double>(tick) <= c.state.end; tick += step) {
      const double x = c.x_of(static_cast<double>(tick));
      const std::string label = tick_text(tick, step);
      if (x + text_width(label, TextSize::Small) / 2.0 < heads)
        add_text(scene_, x, c.at.axis_y + 15, label, TextSize::Small, c.colors.faint_text,
                 Anchor::Middle);
      scene_.lines.push_back({.x1 = x,
                              .y1 = c.at.top - 4,
                              .x2 = x,
                              .y2 = c.at.bottom,
                              .width = 1,
                              .color = c.colors.grid});
    }
    add_text(scene_, right, c.at.axis_y + 15, std::string(head), TextSize::Small,
             c.colors.faint_text, Anchor::End);
    if (c.state.play) {
      const double x = std::clamp(c.x_of(*c.state.play), c.at.left, c.at.left + c.at.width);
      scene_.rects.push_back(
          {.x = x - 4, .y = c.at.axis_y + 16, .width = 8, .height = 6, .fill = c.colors.accent});
    }
  }

  void row_labels(bool pinned) {
    Scene layer = bounded(pinned);
    layer.clip_x = 0;
    layer.clip_width = c.state.width;
    const auto [begin, end] = c.shown_range();
    double last_label = -100;
    for (const RowSpot& row : c.at.rows) {
      if (row.pinned != pinned || !in_sight(pinned, row.y, row.height)) continue;
      if (row.y - last_label < 12) continue;  // rows lower than a line: every n-th is named
      last_label = row.y;
      const Trace& trace = c.session.at(row.document).trace();
      const bool stands = row.of_class > 0;
      std::string name =
          stands ? c.session.classes(row.document).class_name(row.row) : row_name(trace, {row.row});
      if (c.state.play) name = now_on(row, name);
      if (pinned)
        layer.rects.push_back({.x = 2,
                               .y = row.y + 1,
                               .width = 3,
                               .height = row.height - 2,
                               .fill = c.colors.accent});
      // In the middle of the rank's compute lane, with what tells its trace below or behind it.
      const double own = row.lag_y >= 0 ? row.lag_y - row.y : row.height;
      const double middle = row.y + std::round(c.at.lane_height / 2);
      const bool two_lines = c.session.compares() && own >= 25;
      const double name_y = two_lines ? std::max(row.y + 11, middle - 2) : middle + 4;
      const std::string shown =
          clipped(name, TextSize::Small, c.at.left - (stands || c.at.narrow ? 18 : 60));
      add_text(layer, 10, name_y, shown, TextSize::Small, c.colors.text);
      add_text(
          layer, c.state.width - 12, name_y,
          percent_text(c.summary_of(row.document, begin, end, row.row, row.row + 1).bubble_ratio()),
          TextSize::Small, c.colors.text, Anchor::End);
      if (two_lines) {
        add_text(layer, 10, name_y + (own < 28 ? 12 : 14),
                 clipped(c.name_of(row.document), TextSize::Small, c.at.left - 60), TextSize::Small,
                 c.colors.faint_text);
      } else if (c.session.compares()) {
        const double x = 16.0 + text_width(shown, TextSize::Small);
        add_text(layer, x, name_y,
                 clipped(c.name_of(row.document), TextSize::Small, c.at.left - 8 - x),
                 TextSize::Small, c.colors.faint_text);
      }
      if (row.lag_y >= 0 && c.at.lag_height >= 11 && !c.session.lag(row.row).empty()) {
        const double base = row.lag_y + c.at.lag_height / 2 + 4;
        add_text(layer, c.at.left - 8, base, "lag", TextSize::Small, c.colors.faint_text,
                 Anchor::End);
        add_text(layer, c.state.width - 12, base,
                 lag_text(c.session.lag(row.row).at(c.at_ns(1, end)) + c.lag_shift()),
                 TextSize::Small, c.colors.faint_text, Anchor::End);
      }
      if (row.memory_y >= 0) {
        add_text(layer, c.at.left - 8, row.memory_y + c.at.memory_height / 2 + 4, "memory",
                 TextSize::Small, c.colors.faint_text, Anchor::End);
        add_text(layer, c.state.width - 12, row.memory_y + c.at.memory_height / 2 + 4,
                 bytes_text(c.session.at(row.document).memory(row.row).peak().bytes),
                 TextSize::Small, c.colors.faint_text, Anchor::End);
      }
    }
    for (const LaneSpot& spot : c.at.lanes) {
      const Trace& trace = c.session.at(spot.document).trace();
      if (spot.lane % trace.slots == 0 || spot.pinned != pinned ||
          !in_sight(pinned, spot.y, spot.height)) {
        continue;
      }
      add_text(layer, c.at.left - 8, spot.y + spot.height / 2 + 4, lane_name(trace, spot.lane),
               TextSize::Small, c.colors.faint_text, Anchor::End);
    }
    for (const LinkSpot& spot : c.at.links) {
      if (pinned) break;
      const double base = spot.y + c.at.link_height / 2 + 3;
      add_text(layer, 10, base, clipped(link_label(spot), TextSize::Small, c.at.left - 20),
               TextSize::Small, c.colors.faint_text);
      if (spot.link < 0) continue;
      const LinkUse use = c.session.at(spot.document)
                              .link(spot.link)
                              .over(c.at_ns(spot.document, begin), c.at_ns(spot.document, end));
      add_text(layer, c.state.width - 12, base, percent_text(use.mean), TextSize::Small,
               c.colors.faint_text, Anchor::End);
    }
    scene_.layers.push_back(std::move(layer));
  }

  std::string link_label(const LinkSpot& spot) const {
    const Document& document = c.session.at(spot.document);
    const Trace& trace = document.trace();
    if (spot.link >= 0)
      return std::string(trace.text(trace.links[static_cast<std::size_t>(spot.link)].name));
    return std::to_string(trace.links.size() - document.loaded_links().size()) +
           " links without load";
  }

  // While the scrubber stands, a row's label says what the row does at that time.
  std::string now_on(const RowSpot& row, const std::string& name) const {
    const Document& document = c.session.at(row.document);
    const Trace& trace = document.trace();
    const std::int64_t time = c.origins[static_cast<std::size_t>(row.document)] +
                              static_cast<std::int64_t>(*c.state.play);
    const OpId op = op_at(document.index(), row.row * trace.slots, time);
    if (op) return name + ": " + op_name(trace, op);
    const std::int32_t idle = idle_at(document.index(), row.row, time);
    return name + (idle < 0 ? ": idle"
                            : ": " + std::string(kIdleCauseNames[static_cast<std::size_t>(
                                         trace.idle[static_cast<std::size_t>(idle)].cause)]));
  }

  const ViewContext& c;  // short: it is in every line. NOLINT(readability-identifier-naming)
  SceneCache& cache_;
  Scene scene_;
  std::vector<std::vector<const LaneSpot*>> spots_;  // per document and lane
};

}  // namespace

Scene view_scene(const Session& session, const ViewState& state, SceneCache& cache) {
  const ViewContext context(session, state);
  return Composer(context, cache).draw();
}

Scene view_scene(const Session& session, const ViewState& state) {
  SceneCache cache;
  return view_scene(session, state, cache);
}

}  // namespace rehearse::viz
