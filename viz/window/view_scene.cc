// SPDX-License-Identifier: Apache-2.0
#include "viz/window/view_scene.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/analysis/analysis.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/paint.h"
#include "viz/window/view_context.h"

namespace rehearse::viz {
namespace {

Color mixed(Color a, Color b, double share) {  // share of b
  const auto mix = [share](std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(std::lround(x + (y - x) * share));
  };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// Diverging, for errors: slower is vermilion, faster blue, equal grey; full colour at 25 %.
Color error_color(double error) {
  constexpr Color kEqual{150, 150, 150}, kSlower{213, 94, 0}, kFaster{0, 114, 178};
  return mixed(kEqual, error > 0 ? kSlower : kFaster, std::min(1.0, std::fabs(error) / 0.25));
}

class Composer {
 public:
  Composer(const ViewContext& context, SceneCache& cache) : c(context), cache_(cache) {}

  Scene draw() {
    scene_.width = c.state.width;
    scene_.height = c.state.height;
    scene_.background = c.colors.background;
    scene_.title = "rehearse";
    Scene lanes = lane_layer();
    Scene over = overlay_layer();
    draw_bar(c, scene_);
    draw_minimap(c, scene_, cache_);
    axis();
    row_labels();
    draw_panel(c, scene_);
    scene_.layers.push_back(std::move(lanes));
    scene_.layers.push_back(std::move(over));
    scene_.layers.push_back(top_layer(c));
    return std::move(scene_);
  }

 private:
  Scene bounded() const {
    Scene layer;
    layer.clip_x = c.at.left;
    layer.clip_y = c.at.top;
    layer.clip_width = c.at.width;
    layer.clip_height = c.at.bottom - c.at.top;
    return layer;
  }

  View view_of(const Trace& trace) const {
    const auto begin = trace.begin.value + static_cast<std::int64_t>(std::floor(c.state.begin));
    const auto end = trace.begin.value + static_cast<std::int64_t>(std::ceil(c.state.end));
    return {.begin = {begin},
            .end = {std::max(begin + 1, end)},
            .width_px = static_cast<std::int32_t>(c.at.width),
            .snap = true};
  }

  Scene lane_layer() {
    Scene layer = bounded();
    cache_.frames.resize(c.session.documents().size());
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(c.session.documents().size()); ++d) {
      const Document& document = c.session.at(d);
      std::vector<std::int32_t> lanes;
      std::vector<const LaneSpot*> spots;
      for (const LaneSpot& spot : c.at.lanes) {
        if (spot.document != d || spot.y + spot.height < c.at.top || spot.y > c.at.bottom) continue;
        lanes.push_back(spot.lane);
        spots.push_back(&spot);
      }
      Frame& frame = cache_.frames[static_cast<std::size_t>(d)];
      layout(document.index(), view_of(document.trace()), lanes, frame);
      if (!c.state.causes) hide_causes(frame);
      const bool errors = d == 1 && c.state.difference && c.session.corresponds();
      for (std::size_t i = 0; i < spots.size(); ++i) {
        paint_lane(document.index(), frame, frame.lanes[i],
                   {.x = c.at.left, .y = spots[i]->y, .height = spots[i]->height}, c.theme, layer,
                   !errors);
        if (errors) paint_errors(frame, frame.lanes[i], *spots[i], layer);
      }
    }
    for (const RowSpot& row : c.at.rows) {
      if (row.memory_y >= 0 && row.memory_y < c.at.bottom &&
          row.memory_y + kMemoryHeight > c.at.top) {
        memory(row, layer);
      }
    }
    for (const LinkSpot& link : c.at.links) {
      if (link.y < c.at.bottom && link.y + kLinkHeight > c.at.top) link_lane(link, layer);
    }
    return layer;
  }

  static void hide_causes(Frame& frame) {
    for (LaneFrame& lane : frame.lanes) lane.idle.any = false;
    for (Box& box : frame.boxes) {
      if (box.idle) box.end = box.begin;  // of no width: not drawn
    }
  }

  // How much longer or shorter each op is than in the first trace.
  void paint_errors(const Frame& frame, const LaneFrame& lane, const LaneSpot& spot, Scene& layer) {
    const Trace& trace = c.session.at(1).trace();
    const Trace& other = c.session.at(0).trace();
    for (const Box& box : frame.boxes_of(lane)) {
      if (box.idle) continue;
      const auto i = static_cast<std::size_t>(box.item);
      const OpId same = c.session.counterpart({1, {box.item}});
      if (!same) continue;
      const std::int64_t here = trace.end_ns[i] - trace.start_ns[i],
                         there = other.end_ns[same.index()] - other.start_ns[same.index()];
      const double error =
          there > 0 ? static_cast<double>(here) / static_cast<double>(there) - 1 : 0;
      const double x = c.at.left + frame.view.x_of(box.begin),
                   end = c.at.left + frame.view.x_of(box.end);
      layer.rects.push_back({.x = x,
                             .y = spot.y,
                             .width = end - x,
                             .height = spot.height,
                             .fill = error_color(error),
                             .alpha = 235});
      const std::string label = (error >= 0 ? "+" : "") + percent_text(error);
      if (spot.height >= 11 && text_width(label, TextSize::Small) + 4 <= end - x) {
        add_text(layer, (x + end) / 2, spot.y + spot.height / 2 + 4, label, TextSize::Small,
                 text_on(error_color(error)), Anchor::Middle);
      }
    }
  }

  void memory(const RowSpot& row, Scene& layer) {
    const Trace& trace = c.session.at(row.document).trace();
    const std::size_t parts = trace.memory_parts.size();
    const MemoryPeak peak = memory_peak(trace, {row.row});
    const std::int64_t capacity = trace.rows[static_cast<std::size_t>(row.row)].capacity_bytes;
    // A row that needs little of its device has its curve drawn to its own scale.
    const bool shows_capacity = capacity > 0 && peak.bytes >= capacity / 4;
    const double scale =
        kMemoryHeight / std::max({shows_capacity ? static_cast<double>(capacity) : 0.0,
                                  1.1 * static_cast<double>(peak.bytes), 1.0});
    const double base = row.memory_y + kMemoryHeight;
    const auto first =
        static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row.row)]);
    const auto last =
        static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row.row) + 1]);
    layer.plates.push_back({.x = c.at.left,
                            .y = row.memory_y,
                            .width = c.at.width,
                            .height = kMemoryHeight,
                            .fill = c.colors.lane});
    std::vector<double> sums(last - first, 0.0);
    std::vector<Area> areas;
    for (std::size_t part = 0; part < parts; ++part) {
      Area area{.base = static_cast<float>(base),
                .end = static_cast<float>(c.at.left + c.at.width),
                .fill = kMemoryColors[part % kMemoryColors.size()],
                .alpha = 190};
      for (std::size_t i = first; i < last; ++i) {
        sums[i - first] += static_cast<double>(trace.memory_bytes[i * parts + part]);
        const double x =
            std::max(c.at.left, std::floor(c.x_of(c.since(trace, trace.memory_time[i]))));
        if (x >= c.at.left + c.at.width) break;
        const auto y = static_cast<float>(base - sums[i - first] * scale);
        if (!area.x.empty() &&
            area.x.back() >= static_cast<float>(x)) {  // of a pixel's samples the most
          area.y.back() = x <= c.at.left ? y : std::min(area.y.back(), y);
          continue;
        }
        area.x.push_back(static_cast<float>(x));
        area.y.push_back(y);
      }
      areas.push_back(std::move(area));
    }
    for (auto area = areas.rbegin(); area != areas.rend(); ++area)
      layer.areas.push_back(std::move(*area));
    // The peak: a mark that stays in sight when the curve is a pixel wide there.
    const double peak_x = c.x_of(c.since(trace, peak.time));
    const double peak_y = base - static_cast<double>(peak.bytes) * scale;
    if (peak.bytes > 0) {
      layer.rects.push_back(
          {.x = peak_x - 2, .y = peak_y - 2, .width = 5, .height = 5, .fill = c.colors.text});
    }
    if (shows_capacity) {
      const double y = base - static_cast<double>(capacity) * scale;
      layer.lines.push_back({.x1 = c.at.left,
                             .y1 = y,
                             .x2 = c.at.left + c.at.width,
                             .y2 = y,
                             .width = 1,
                             .color = c.colors.accent});
    }
  }

  void link_lane(const LinkSpot& spot, Scene& layer) {
    const Trace& trace = c.session.at(spot.document).trace();
    const auto link = static_cast<std::size_t>(spot.link);
    layer.plates.push_back({.x = c.at.left,
                            .y = spot.y,
                            .width = c.at.width,
                            .height = kLinkHeight - 2,
                            .fill = c.colors.lane});
    Area area{.base = static_cast<float>(spot.y + kLinkHeight - 2),
              .end = static_cast<float>(c.at.left + c.at.width),
              .fill = color_of(OpKind::AllReduce),
              .alpha = 220};
    const auto columns = static_cast<std::size_t>(std::max(1.0, c.at.width));
    const std::vector<double> mean = link_columns(trace, link, c.state.begin, c.state.end, columns);
    for (std::size_t i = 0; i < columns; ++i) {
      const auto y =
          static_cast<float>(static_cast<double>(area.base) - (kLinkHeight - 2) * mean[i]);
      if (!area.y.empty() && area.y.back() == y) continue;  // a step that goes on
      area.x.push_back(static_cast<float>(c.at.left + c.at.width * static_cast<double>(i) /
                                                          static_cast<double>(columns)));
      area.y.push_back(y);
    }
    layer.areas.push_back(std::move(area));
  }

  // Selection, dependencies, critical path, range, scrubber: above the lanes.
  Scene overlay_layer() {
    Scene layer = bounded();
    if (c.state.critical) critical(layer);
    if (c.state.selected) dependencies(layer);
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

  const LaneSpot* spot_of(OpRef op) const {
    const std::int32_t lane = c.session.at(op.document).trace().lane_of(op.op);
    for (const LaneSpot& spot : c.at.lanes) {
      if (spot.document == op.document && spot.lane == lane) return &spot;
    }
    return nullptr;
  }
  struct Place {
    double begin = 0, end = 0, y = 0, height = 0;
    bool shown = false;
  };
  Place place_of(OpRef op) const {
    const LaneSpot* spot = spot_of(op);
    if (spot == nullptr) return {};
    const Trace& trace = c.session.at(op.document).trace();
    return {c.x_of(c.since(trace, trace.start_ns[op.op.index()])),
            c.x_of(c.since(trace, trace.end_ns[op.op.index()])), spot->y, spot->height, true};
  }

  void critical(Scene& layer) {
    constexpr double kPathHeight = 0.85;  // of a lane: below the labels
    constexpr Color kLight{255, 240, 60}, kDarkLine{190, 20, 90};
    const Color color = c.state.dark ? kLight : kDarkLine;
    const CriticalPath& path = c.session.at(0).critical();
    Place before;
    for (const OpId op : path.ops) {
      const Place place = place_of({0, op});
      if (!place.shown || place.begin > c.at.left + c.at.width) {
        before = place;
        continue;
      }
      if (place.end >= c.at.left) {
        const double y = place.y + place.height * kPathHeight;
        layer.lines.push_back(
            {.x1 = place.begin, .y1 = y, .x2 = place.end, .y2 = y, .width = 2.5, .color = color});
        if (before.shown) {
          layer.lines.push_back({.x1 = before.end,
                                 .y1 = before.y + before.height * kPathHeight,
                                 .x2 = place.begin,
                                 .y2 = y,
                                 .width = 1.5,
                                 .color = color,
                                 .alpha = 200});
        }
      }
      before = place;
    }
  }

  // What the selected op waited for, and what that waited for, paler with each step.
  void dependencies(Scene& layer) {
    constexpr int kSteps = 6;
    constexpr std::size_t kMost = 300;
    const Document& document = c.session.at(c.state.selected.document);
    const Causality& causes = document.causality();
    std::vector<std::int32_t> now{causes.node_of(c.state.selected.op)};
    std::vector<std::int32_t> seen = now;
    for (int step = 0; step < kSteps && !now.empty() && seen.size() < kMost; ++step) {
      std::vector<std::int32_t> next;
      for (const std::int32_t node : now) {
        for (const std::int32_t member : causes.members(node)) {
          const Place to = place_of({c.state.selected.document, {member}});
          causes.for_each_before_op({member}, [&](OpId op) {
            arrow(place_of({c.state.selected.document, op}), to, step, layer);
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
    const Place place = place_of(c.state.selected);
    if (place.shown) {
      layer.rects.push_back({.x = place.begin - 2,
                             .y = place.y - 2,
                             .width = std::max(2.0, place.end - place.begin) + 4,
                             .height = place.height + 4,
                             .fill = c.colors.text,
                             .alpha = 0,
                             .outlined = true,
                             .outline = c.colors.text});
      layer.rects.push_back({.x = place.begin - 1,
                             .y = place.y - 1,
                             .width = std::max(2.0, place.end - place.begin) + 2,
                             .height = place.height + 2,
                             .fill = c.colors.text,
                             .alpha = 0,
                             .outlined = true,
                             .outline = c.colors.text});
    }
  }
  void arrow(const Place& from, const Place& to, int step, Scene& layer) {
    if (!from.shown || !to.shown) return;
    const auto alpha = static_cast<std::uint8_t>(step == 0 ? 255 : 150 / step);
    layer.lines.push_back({.x1 = from.end,
                           .y1 = from.y + from.height / 2,
                           .x2 = to.begin,
                           .y2 = to.y + to.height / 2,
                           .width = step == 0 ? 1.8 : 1.0,
                           .color = c.colors.text,
                           .alpha = alpha});
    layer.rects.push_back({.x = to.begin - 2,
                           .y = to.y + to.height / 2 - 2,
                           .width = 4,
                           .height = 4,
                           .fill = c.colors.text,
                           .alpha = alpha});
  }

  void axis() {
    const double span = c.state.end - c.state.begin;
    const std::int64_t step = nice_step(span * 110 / c.at.width);
    auto tick =
        static_cast<std::int64_t>(std::ceil(c.state.begin / static_cast<double>(step))) * step;
    for (; static_cast<double>(tick) <= c.state.end; tick += step) {
      const double x = c.x_of(static_cast<double>(tick));
      add_text(scene_, x, c.at.axis_y + 15, tick_text(tick, step), TextSize::Small,
               c.colors.faint_text, Anchor::Middle);
      scene_.lines.push_back({.x1 = x,
                              .y1 = c.at.top - 4,
                              .x2 = x,
                              .y2 = c.at.bottom,
                              .width = 1,
                              .color = c.colors.grid});
    }
    add_text(scene_, c.state.width - 12, c.at.axis_y + 15, "idle", TextSize::Small,
             c.colors.faint_text, Anchor::End);
    if (c.state.play) {
      const double x = std::clamp(c.x_of(*c.state.play), c.at.left, c.at.left + c.at.width);
      scene_.rects.push_back(
          {.x = x - 4, .y = c.at.axis_y + 16, .width = 8, .height = 6, .fill = c.colors.accent});
    }
  }

  void row_labels() {
    Scene layer;
    layer.clip_y = c.at.top;
    layer.clip_width = c.state.width;
    layer.clip_height = c.at.bottom - c.at.top;
    const auto [begin, end] = c.shown_range();
    double last_label = -100;
    for (const RowSpot& row : c.at.rows) {
      if (row.y + row.height < c.at.top || row.y > c.at.bottom) continue;
      if (row.y - last_label < 12) continue;  // rows lower than a line: every n-th is named
      last_label = row.y;
      const Trace& trace = c.session.at(row.document).trace();
      std::string name = row_name(trace, {row.row});
      if (c.state.play) name = now_on(row, name);
      add_text(layer, 10, row.y + 13, clipped(name, TextSize::Small, c.at.left - 60),
               TextSize::Small, c.colors.text);
      add_text(
          layer, c.state.width - 12, row.y + 13,
          percent_text(c.summary_of(row.document, begin, end, row.row, row.row + 1).bubble_ratio()),
          TextSize::Small, c.colors.text, Anchor::End);
      if (c.session.compares() && row.height >= 30) {
        add_text(layer, 10, row.y + 27,
                 clipped(short_name(row.document), TextSize::Small, c.at.left - 60),
                 TextSize::Small, c.colors.faint_text);
      }
      if (row.memory_y >= 0) {
        add_text(layer, c.at.left - 8, row.memory_y + kMemoryHeight / 2 + 4, "memory",
                 TextSize::Small, c.colors.faint_text, Anchor::End);
        add_text(layer, c.state.width - 12, row.memory_y + kMemoryHeight / 2 + 4,
                 bytes_text(memory_peak(trace, {row.row}).bytes), TextSize::Small,
                 c.colors.faint_text, Anchor::End);
      }
    }
    for (const LaneSpot& spot : c.at.lanes) {
      const Trace& trace = c.session.at(spot.document).trace();
      if (spot.lane % trace.slots == 0 || spot.y + spot.height < c.at.top || spot.y > c.at.bottom)
        continue;
      add_text(layer, c.at.left - 8, spot.y + 8, lane_name(trace, spot.lane), TextSize::Small,
               c.colors.faint_text, Anchor::End);
    }
    for (const LinkSpot& spot : c.at.links) {
      const Trace& trace = c.session.at(spot.document).trace();
      add_text(
          layer, 10, spot.y + 11,
          clipped(std::string(trace.text(trace.links[static_cast<std::size_t>(spot.link)].name)),
                  TextSize::Small, c.at.left - 20),
          TextSize::Small, c.colors.faint_text);
    }
    scene_.layers.push_back(std::move(layer));
  }

  // What tells a trace from the other one: predicted or measured, else its schedule.
  std::string short_name(std::int32_t document) const {
    const Trace& trace = c.session.at(document).trace();
    if (trace.label != c.session.at(1 - document).trace().label) {
      return trace.label == TraceLabel::Predicted ? "predicted" : "measured";
    }
    if (trace.schedule_hash != c.session.at(1 - document).trace().schedule_hash &&
        !trace.schedule_name.empty()) {
      return trace.schedule_name.substr(0, trace.schedule_name.find('('));
    }
    return document == 0 ? "first" : "second";
  }

  // While the scrubber stands, a row's label says what the row does at that time.
  std::string now_on(const RowSpot& row, const std::string& name) const {
    const Document& document = c.session.at(row.document);
    const Trace& trace = document.trace();
    const std::int64_t time = trace.begin.value + static_cast<std::int64_t>(*c.state.play);
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
