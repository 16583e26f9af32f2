#include "viz/view_scene.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/describe.h"
#include "viz/geometry.h"
#include "viz/paint.h"
#include "viz/units_text.h"

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
  Composer(const Session& session, const ViewState& state)
      : session_(session), state_(state), at_(geometry(session, state)),
        theme_(state.dark ? Theme::Dark : Theme::Light), colors_(palette(theme_)) {}

  Scene draw() {
    scene_.width = state_.width;
    scene_.height = state_.height;
    scene_.background = colors_.background;
    scene_.title = "rehearse";
    Scene lanes = lane_layer();
    Scene over = overlay_layer();
    bar();
    minimap();
    axis();
    row_labels();
    panel();
    scene_.layers.push_back(std::move(lanes));
    scene_.layers.push_back(std::move(over));
    scene_.layers.push_back(top_layer());
    return std::move(scene_);
  }

 private:
  void text(Scene& to, double x, double y, std::string what, TextSize size, Color color, Anchor anchor = Anchor::Begin) {
    to.texts.push_back({.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  }
  static std::string clipped(std::string what, TextSize size, double width) {
    if (text_width(what, size) <= width) return what;
    while (!what.empty() && text_width(what, size) + text_width("…", size) > width) what.pop_back();
    return what + "…";
  }
  double x_of(double time) const { return at_.x_of(state_, time); }
  // Since the step's begin.
  double since(const Trace& trace, std::int64_t time) const { return static_cast<double>(time - trace.begin.value); }
  Scene bounded() const {
    Scene layer;
    layer.clip_x = at_.left;
    layer.clip_y = at_.top;
    layer.clip_width = at_.width;
    layer.clip_height = at_.bottom - at_.top;
    return layer;
  }

  View view_of(const Trace& trace) const {
    const auto begin = trace.begin.value + static_cast<std::int64_t>(std::floor(state_.begin));
    const auto end = trace.begin.value + static_cast<std::int64_t>(std::ceil(state_.end));
    return {.begin = {begin}, .end = {std::max(begin + 1, end)},
            .width_px = static_cast<std::int32_t>(at_.width), .snap = true};
  }

  Scene lane_layer() {
    Scene layer = bounded();
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(session_.documents().size()); ++d) {
      const Document& document = session_.at(d);
      std::vector<std::int32_t> lanes;
      std::vector<const LaneSpot*> spots;
      for (const LaneSpot& spot : at_.lanes) {
        if (spot.document != d || spot.y + spot.height < at_.top || spot.y > at_.bottom) continue;
        lanes.push_back(spot.lane);
        spots.push_back(&spot);
      }
      Frame frame;
      layout(document.index(), view_of(document.trace()), lanes, frame);
      if (!state_.causes) hide_causes(frame);
      for (std::size_t i = 0; i < spots.size(); ++i) {
        paint_lane(document.index(), frame, frame.lanes[i], {.x = at_.left, .y = spots[i]->y, .height = spots[i]->height}, theme_, layer);
        if (state_.difference && session_.same_schedule()) paint_errors(d, frame, frame.lanes[i], *spots[i], layer);
      }
    }
    for (const RowSpot& row : at_.rows) {
      if (row.memory_y >= 0 && row.memory_y < at_.bottom && row.memory_y + kMemoryHeight > at_.top) memory(row, layer);
    }
    for (const LinkSpot& link : at_.links) {
      if (link.y < at_.bottom && link.y + kLinkHeight > at_.top) link_lane(link, layer);
    }
    return layer;
  }

  static void hide_causes(Frame& frame) {
    for (LaneFrame& lane : frame.lanes) lane.idle.any = false;
    for (Box& box : frame.boxes) {
      if (box.idle) box.end = box.begin;  // of no width: not drawn
    }
  }

  void paint_errors(std::int32_t document, const Frame& frame, const LaneFrame& lane, const LaneSpot& spot, Scene& layer) {
    const Trace& trace = session_.at(document).trace();
    const Trace& other = session_.at(1 - document).trace();
    for (const Box& box : frame.boxes_of(lane)) {
      if (box.idle) continue;
      const auto i = static_cast<std::size_t>(box.item);
      const std::int64_t here = trace.end_ns[i] - trace.start_ns[i], there = other.end_ns[i] - other.start_ns[i];
      const double error = there > 0 ? static_cast<double>(here) / static_cast<double>(there) - 1 : 0;
      const double x = at_.left + frame.view.x_of(box.begin), end = at_.left + frame.view.x_of(box.end);
      layer.rects.push_back({.x = x, .y = spot.y, .width = end - x, .height = spot.height, .fill = error_color(error), .alpha = 235});
      const std::string label = (error >= 0 ? "+" : "") + percent_text(error);
      if (spot.height >= 11 && text_width(label, TextSize::Small) + 4 <= end - x) {
        text(layer, (x + end) / 2, spot.y + spot.height / 2 + 4, label, TextSize::Small, text_on(error_color(error)), Anchor::Middle);
      }
    }
  }

  void memory(const RowSpot& row, Scene& layer) {
    static constexpr std::array<Color, 8> kParts{{{0, 114, 178}, {213, 94, 0}, {240, 228, 66}, {0, 158, 115},
                                                  {204, 121, 167}, {86, 180, 233}, {153, 153, 153}, {230, 159, 0}}};
    const Trace& trace = session_.at(row.document).trace();
    const std::size_t parts = trace.memory_parts.size();
    const MemoryPeak peak = memory_peak(trace, {row.row});
    const std::int64_t capacity = trace.rows[static_cast<std::size_t>(row.row)].capacity_bytes;
    const double scale = kMemoryHeight / static_cast<double>(std::max({peak.bytes, capacity, std::int64_t{1}}));
    const double base = row.memory_y + kMemoryHeight;
    const auto first = static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row.row)]);
    const auto last = static_cast<std::size_t>(trace.memory_begin[static_cast<std::size_t>(row.row) + 1]);
    layer.plates.push_back({.x = at_.left, .y = row.memory_y, .width = at_.width, .height = kMemoryHeight, .fill = colors_.lane});
    std::vector<double> sums(last - first, 0.0);
    std::vector<Area> areas;
    for (std::size_t part = 0; part < parts; ++part) {
      Area area{.base = static_cast<float>(base), .end = static_cast<float>(at_.left + at_.width), .fill = kParts[part % kParts.size()], .alpha = 190};
      for (std::size_t i = first; i < last; ++i) {
        sums[i - first] += static_cast<double>(trace.memory_bytes[i * parts + part]);
        const double x = std::max(at_.left, std::floor(x_of(since(trace, trace.memory_time[i]))));
        if (x >= at_.left + at_.width) break;
        const auto y = static_cast<float>(base - sums[i - first] * scale);
        if (!area.x.empty() && area.x.back() >= static_cast<float>(x)) {  // of a pixel's samples the most
          area.y.back() = x <= at_.left ? y : std::min(area.y.back(), y);
          continue;
        }
        area.x.push_back(static_cast<float>(x));
        area.y.push_back(y);
      }
      areas.push_back(std::move(area));
    }
    for (auto area = areas.rbegin(); area != areas.rend(); ++area) layer.areas.push_back(std::move(*area));
    if (capacity > 0) {
      const double y = base - static_cast<double>(capacity) * scale;
      layer.lines.push_back({.x1 = at_.left, .y1 = y, .x2 = at_.left + at_.width, .y2 = y, .width = 1, .color = colors_.accent});
    }
  }

  void link_lane(const LinkSpot& spot, Scene& layer) {
    const Trace& trace = session_.at(spot.document).trace();
    const auto link = static_cast<std::size_t>(spot.link);
    layer.plates.push_back({.x = at_.left, .y = spot.y, .width = at_.width, .height = kLinkHeight - 2, .fill = colors_.lane});
    Area area{.base = static_cast<float>(spot.y + kLinkHeight - 2), .end = static_cast<float>(at_.left + at_.width), .fill = color_of(OpKind::AllReduce), .alpha = 220};
    for (auto i = static_cast<std::size_t>(trace.link_begin[link]); i < static_cast<std::size_t>(trace.link_begin[link + 1]); ++i) {
      const LinkSample& sample = trace.link_samples[i];
      const double x = std::max(at_.left, x_of(since(trace, sample.time)));
      if (x >= at_.left + at_.width) break;
      const auto y = static_cast<float>(static_cast<double>(area.base) - (kLinkHeight - 2) * std::min(1.0, sample.load_ppm / 1e6));
      if (!area.x.empty() && area.x.back() + 0.5f >= static_cast<float>(x)) {
        area.y.back() = x <= at_.left ? y : std::min(area.y.back(), y);
        continue;
      }
      area.x.push_back(static_cast<float>(x));
      area.y.push_back(y);
    }
    layer.areas.push_back(std::move(area));
  }

  // Selection, dependencies, critical path, range, scrubber: above the lanes.
  Scene overlay_layer() {
    Scene layer = bounded();
    if (state_.critical) critical(layer);
    if (state_.selected) dependencies(layer);
    if (state_.range) {
      const double x = x_of(state_.range->first), end = x_of(state_.range->second);
      layer.rects.push_back({.x = x, .y = at_.top, .width = end - x, .height = at_.bottom - at_.top, .fill = colors_.text, .alpha = 28});
      for (const double edge : {x, end}) {
        layer.lines.push_back({.x1 = edge, .y1 = at_.top, .x2 = edge, .y2 = at_.bottom, .width = 1, .color = colors_.text, .alpha = 150});
      }
    }
    if (state_.play) {
      const double x = x_of(*state_.play);
      layer.lines.push_back({.x1 = x, .y1 = at_.top, .x2 = x, .y2 = at_.bottom, .width = 1.5, .color = colors_.accent});
    }
    return layer;
  }

  const LaneSpot* spot_of(OpRef op) const {
    const std::int32_t lane = session_.at(op.document).trace().lane_of(op.op);
    for (const LaneSpot& spot : at_.lanes) {
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
    const Trace& trace = session_.at(op.document).trace();
    return {x_of(since(trace, trace.start_ns[op.op.index()])), x_of(since(trace, trace.end_ns[op.op.index()])), spot->y, spot->height, true};
  }

  void critical(Scene& layer) {
    constexpr double kPathHeight = 0.85;  // of a lane: below the labels
    constexpr Color kLight{255, 240, 60}, kDarkLine{190, 20, 90};
    const Color color = state_.dark ? kLight : kDarkLine;
    const CriticalPath& path = session_.at(0).critical();
    Place before;
    for (const OpId op : path.ops) {
      const Place place = place_of({0, op});
      if (!place.shown || place.begin > at_.left + at_.width) { before = place; continue; }
      if (place.end >= at_.left) {
        const double y = place.y + place.height * kPathHeight;
        layer.lines.push_back({.x1 = place.begin, .y1 = y, .x2 = place.end, .y2 = y, .width = 2.5, .color = color});
        if (before.shown) {
          layer.lines.push_back({.x1 = before.end, .y1 = before.y + before.height * kPathHeight, .x2 = place.begin, .y2 = y, .width = 1.5, .color = color, .alpha = 200});
        }
      }
      before = place;
    }
  }

  // What the selected op waited for, and what that waited for, paler with each step.
  void dependencies(Scene& layer) {
    constexpr int kSteps = 6;
    constexpr std::size_t kMost = 300;
    const Document& document = session_.at(state_.selected.document);
    const Causality& causes = document.causality();
    std::vector<std::int32_t> now{causes.node_of(state_.selected.op)};
    std::vector<std::int32_t> seen = now;
    for (int step = 0; step < kSteps && !now.empty() && seen.size() < kMost; ++step) {
      std::vector<std::int32_t> next;
      for (const std::int32_t node : now) {
        for (const std::int32_t member : causes.members(node)) {
          const Place to = place_of({state_.selected.document, {member}});
          causes.for_each_before_op({member}, [&](OpId op) {
            arrow(place_of({state_.selected.document, op}), to, step, layer);
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
    const Place place = place_of(state_.selected);
    if (place.shown) {
      layer.rects.push_back({.x = place.begin - 2, .y = place.y - 2, .width = std::max(2.0, place.end - place.begin) + 4, .height = place.height + 4,
                             .fill = colors_.text, .alpha = 0, .outlined = true, .outline = colors_.text});
      layer.rects.push_back({.x = place.begin - 1, .y = place.y - 1, .width = std::max(2.0, place.end - place.begin) + 2, .height = place.height + 2,
                             .fill = colors_.text, .alpha = 0, .outlined = true, .outline = colors_.text});
    }
  }
  void arrow(const Place& from, const Place& to, int step, Scene& layer) {
    if (!from.shown || !to.shown) return;
    const auto alpha = static_cast<std::uint8_t>(step == 0 ? 255 : 150 / step);
    layer.lines.push_back({.x1 = from.end, .y1 = from.y + from.height / 2, .x2 = to.begin, .y2 = to.y + to.height / 2,
                           .width = step == 0 ? 1.8 : 1.0, .color = colors_.text, .alpha = alpha});
    layer.rects.push_back({.x = to.begin - 2, .y = to.y + to.height / 2 - 2, .width = 4, .height = 4, .fill = colors_.text, .alpha = alpha});
  }

  void bar() {
    const Trace& trace = session_.at(0).trace();
    const std::string title = trace.title.empty() ? trace.schedule_name : trace.title;
    text(scene_, 12, 21, clipped(title, TextSize::Title, state_.width * 0.4), TextSize::Title, colors_.text);
    const double x = 12 + text_width(clipped(title, TextSize::Title, state_.width * 0.4), TextSize::Title) + 16;
    std::string line = trace.label == TraceLabel::Predicted ? "predicted " : "measured ";
    line += time_text(trace.step().value);
    if (session_.compares()) {
      const Trace& other = session_.at(1).trace();
      line += (other.label == TraceLabel::Predicted ? " / predicted " : " / measured ") + time_text(other.step().value);
    }
    text(scene_, x, 20, line, TextSize::Normal, colors_.faint_text);
    const auto [begin, end] = shown_range();
    const Summary sum = summary_of(0, begin, end);
    std::string live = (state_.range ? "range " : "in view ") + time_text(static_cast<std::int64_t>(end - begin)) + " · bubbles " + percent_text(sum.bubble_ratio());
    if (session_.compares()) live += " / " + percent_text(summary_of(1, begin, end).bubble_ratio());
    text(scene_, state_.width - 70, 20, live, TextSize::Normal, colors_.text, Anchor::End);
    text(scene_, state_.width - 12, 20, "? help", TextSize::Small, colors_.faint_text, Anchor::End);
  }

  // The measured range, or what is in view of the step.
  std::pair<double, double> shown_range() const {
    if (state_.range) return *state_.range;
    const auto step = static_cast<double>(session_.longest_step());
    const double begin = std::clamp(state_.begin, 0.0, step), end = std::clamp(state_.end, 0.0, step);
    return end > begin ? std::pair{begin, end} : std::pair{state_.begin, state_.end};
  }
  Summary summary_of(std::int32_t document, double begin, double end, std::int32_t first = 0, std::int32_t last = -1) const {
    const Trace& trace = session_.at(document).trace();
    const std::int64_t from = trace.begin.value + std::max<std::int64_t>(0, std::llround(begin));
    const std::int64_t to = std::min<std::int64_t>(trace.end.value, trace.begin.value + std::llround(end));
    return summarize(session_.at(document).index(), from, std::max(from, to), first, last < 0 ? trace.num_rows() : last);
  }

  // The whole step: each row a line of pixels, as far as there is room for them.
  void minimap() {
    const Document& document = session_.at(0);
    const Trace& trace = document.trace();
    constexpr std::int32_t kMost = 64;
    std::vector<std::int32_t> lanes;
    const std::int32_t rows = std::max(1, trace.num_rows());
    for (std::int32_t i = 0; i < std::min(rows, kMost) && trace.slots > 0; ++i) {
      lanes.push_back(static_cast<std::int32_t>(std::int64_t{i} * rows / std::min(rows, kMost)) * trace.slots);
    }
    Frame frame;
    // At a twelfth of the width per pixel boxes are rare: lines of colour are what is wanted.
    layout(document.index(), {.begin = trace.begin, .end = {std::max(trace.begin.value + 1, trace.begin.value + session_.longest_step())},
                              .width_px = static_cast<std::int32_t>(at_.width), .snap = true}, lanes, frame);
    Scene layer;
    layer.clip_x = at_.left;
    layer.clip_y = at_.minimap_y;
    layer.clip_width = at_.width;
    layer.clip_height = at_.minimap_height;
    const double height = (at_.minimap_height - 4) / static_cast<double>(std::max<std::size_t>(1, lanes.size()));
    double y = at_.minimap_y + 2;
    for (const LaneFrame& lane : frame.lanes) {
      paint_lane(document.index(), frame, lane, {.x = at_.left, .y = y, .height = height}, theme_, layer);
      y += height;
    }
    layer.texts.clear();
    const double scale = at_.width / static_cast<double>(session_.longest_step());
    const double from = at_.left + std::max(0.0, state_.begin) * scale;
    const double to = at_.left + std::min(static_cast<double>(session_.longest_step()), state_.end) * scale;
    Scene frame_layer;
    for (const auto& [a, b] : {std::pair{at_.left, from}, {to, at_.left + at_.width}}) {
      if (b > a) frame_layer.rects.push_back({.x = a, .y = at_.minimap_y, .width = b - a, .height = at_.minimap_height, .fill = colors_.background, .alpha = 150});
    }
    frame_layer.rects.push_back({.x = from, .y = at_.minimap_y, .width = std::max(3.0, to - from), .height = at_.minimap_height,
                                 .fill = colors_.text, .alpha = 0, .outlined = true, .outline = colors_.text});
    layer.layers.push_back(std::move(frame_layer));
    scene_.layers.push_back(std::move(layer));
  }

  void axis() {
    const double span = state_.end - state_.begin;
    const std::int64_t step = nice_step(span * 110 / at_.width);
    auto tick = static_cast<std::int64_t>(std::ceil(state_.begin / static_cast<double>(step))) * step;
    for (; static_cast<double>(tick) <= state_.end; tick += step) {
      const double x = x_of(static_cast<double>(tick));
      text(scene_, x, at_.axis_y + 15, tick_text(tick, step), TextSize::Small, colors_.faint_text, Anchor::Middle);
      scene_.lines.push_back({.x1 = x, .y1 = at_.top - 4, .x2 = x, .y2 = at_.bottom, .width = 1, .color = colors_.grid});
    }
    text(scene_, state_.width - 12, at_.axis_y + 15, "idle", TextSize::Small, colors_.faint_text, Anchor::End);
    if (state_.play) {
      const double x = std::clamp(x_of(*state_.play), at_.left, at_.left + at_.width);
      scene_.rects.push_back({.x = x - 4, .y = at_.axis_y + 16, .width = 8, .height = 6, .fill = colors_.accent});
    }
  }

  void row_labels() {
    Scene layer;
    layer.clip_y = at_.top;
    layer.clip_width = state_.width;
    layer.clip_height = at_.bottom - at_.top;
    const auto [begin, end] = shown_range();
    double last_label = -100;
    for (const RowSpot& row : at_.rows) {
      if (row.y + row.height < at_.top || row.y > at_.bottom) continue;
      if (row.y - last_label < 12) continue;  // rows lower than a line: every n-th is named
      last_label = row.y;
      const Trace& trace = session_.at(row.document).trace();
      std::string name = row_name(trace, {row.row});
      if (session_.compares()) name += trace.label == TraceLabel::Predicted ? ", predicted" : ", measured";
      if (state_.play) name = now_on(row, name);
      text(layer, 10, row.y + 13, clipped(name, TextSize::Small, at_.left - 60), TextSize::Small, colors_.text);
      text(layer, state_.width - 12, row.y + 13, percent_text(summary_of(row.document, begin, end, row.row, row.row + 1).bubble_ratio()),
           TextSize::Small, colors_.text, Anchor::End);
      if (row.memory_y >= 0) {
        text(layer, at_.left - 8, row.memory_y + kMemoryHeight / 2 + 4, "memory", TextSize::Small, colors_.faint_text, Anchor::End);
        text(layer, state_.width - 12, row.memory_y + kMemoryHeight / 2 + 4, bytes_text(memory_peak(trace, {row.row}).bytes), TextSize::Small, colors_.faint_text, Anchor::End);
      }
    }
    for (const LaneSpot& spot : at_.lanes) {
      const Trace& trace = session_.at(spot.document).trace();
      if (spot.lane % trace.slots == 0 || spot.y + spot.height < at_.top || spot.y > at_.bottom) continue;
      text(layer, at_.left - 8, spot.y + 8, lane_name(trace, spot.lane), TextSize::Small, colors_.faint_text, Anchor::End);
    }
    for (const LinkSpot& spot : at_.links) {
      const Trace& trace = session_.at(spot.document).trace();
      text(layer, 10, spot.y + 11, clipped(std::string(trace.text(trace.links[static_cast<std::size_t>(spot.link)].name)), TextSize::Small, at_.left - 20), TextSize::Small, colors_.faint_text);
    }
    scene_.layers.push_back(std::move(layer));
  }

  // While the scrubber stands, a row's label says what the row does at that time.
  std::string now_on(const RowSpot& row, const std::string& name) const {
    const Document& document = session_.at(row.document);
    const Trace& trace = document.trace();
    const std::int64_t time = trace.begin.value + static_cast<std::int64_t>(*state_.play);
    const OpId op = op_at(document.index(), row.row * trace.slots, time);
    if (op) return name + ": " + op_name(trace, op);
    const std::int32_t idle = idle_at(document.index(), row.row, time);
    return name + (idle < 0 ? ": idle" : ": " + std::string(kIdleCauseNames[static_cast<std::size_t>(trace.idle[static_cast<std::size_t>(idle)].cause)]));
  }

  // Below the lanes: the selected op on the left, where the time in view went on the right.
  void panel() {
    scene_.plates.push_back({.y = at_.panel_y, .width = static_cast<double>(state_.width), .height = at_.panel_height, .fill = colors_.lane});
    double y = at_.panel_y + 20;
    const double middle = state_.width * 0.46;
    if (state_.selected) {
      const std::vector<Fact> facts = describe_op(session_, state_.selected, true);
      text(scene_, 12, y, facts[0].name + ", " + facts[0].value, TextSize::Normal, colors_.text);
      const std::size_t half = (facts.size()) / 2;
      for (std::size_t i = 1; i < facts.size(); ++i) {
        const double x = i <= half ? 12 : 12 + middle / 2;
        const double line = y + 18 * static_cast<double>(i <= half ? i : i - half);
        text(scene_, x, line, facts[i].name, TextSize::Small, colors_.faint_text);
        text(scene_, x + 80, line, clipped(facts[i].value, TextSize::Small, middle / 2 - 96), TextSize::Small, colors_.text);
      }
    } else {
      text(scene_, 12, y, "Click an op or a bubble.", TextSize::Normal, colors_.faint_text);
      if (state_.critical) {
        const CriticalPath& path = session_.at(0).critical();
        text(scene_, 12, y + 20, "Critical path: " + std::to_string(path.ops.size()) + " ops, " + time_text(path.in_ops) + " in ops, " + time_text(path.waiting) + " waiting",
             TextSize::Small, colors_.text);
      }
    }
    shares(middle, y);
  }

  void shares(double left, double y) {
    const auto [begin, end] = shown_range();
    const Summary sum = summary_of(0, begin, end);
    const auto total = static_cast<double>(std::max<std::int64_t>(1, sum.total()));
    text(scene_, left, y, state_.range ? "In the range:" : "In view:", TextSize::Normal, colors_.text);
    const double width = state_.width - left - 12;
    double x = left;
    const double bar_y = y + 10;
    const auto piece = [&](const KindStyle& style, std::int64_t time) {
      const double part = width * static_cast<double>(time) / total;
      scene_.rects.push_back({.x = x, .y = bar_y, .width = part, .height = 16, .fill = style.fill, .hatch = style.hatch, .ink = style.ink});
      x += part;
    };
    double entry_x = left, entry_y = bar_y + 36;
    const auto entry = [&](const KindStyle& style, std::int64_t time) {
      if (time <= 0) return;
      piece(style, time);
      if (static_cast<double>(time) < total * 0.0005) return;
      std::string label = std::string(style.name) + " " + percent_text(static_cast<double>(time) / total);
      const double needed = 24 + text_width(label, TextSize::Small) + 16;
      if (entry_x + needed > state_.width - 12) {
        entry_x = left;
        entry_y += 18;
      }
      scene_.rects.push_back({.x = entry_x, .y = entry_y - 10, .width = 18, .height = 12, .fill = style.fill, .hatch = style.hatch, .ink = style.ink});
      text(scene_, entry_x + 24, entry_y, std::move(label), TextSize::Small, colors_.text);
      entry_x += needed;
    };
    for (std::size_t kind = 0; kind < kNumOpKinds; ++kind) {
      entry(style_of(static_cast<Kind>(kind), theme_), sum.kinds[kind] - sum.in_body[kind]);
    }
    std::int64_t in_body = 0;
    for (const std::int64_t time : sum.in_body) in_body += time;
    entry({.fill = in_body_color(), .ink = in_body_color(), .name = "own collectives"}, in_body);
    for (std::size_t cause = 0; cause < kNumIdleCauses; ++cause) {
      entry(style_of(kind_of(static_cast<IdleCause>(cause)), theme_), sum.causes[cause]);
    }
    entry({.fill = colors_.background, .ink = colors_.faint_text, .name = "idle"}, sum.unexplained);
  }

  // Tooltip, search, statistics, help: above everything.
  Scene top_layer() {
    Scene layer;
    if (state_.drag == Drag::None && !state_.help && !state_.statistics) tooltip(layer);
    if (state_.range && !state_.help) {
      const double x = std::clamp(x_of((state_.range->first + state_.range->second) / 2), at_.left + 60, at_.left + at_.width - 60);
      box(layer, x - 60, at_.top + 4, 120, 20);
      text(layer, x, at_.top + 18, time_text(std::llround(state_.range->second - state_.range->first)), TextSize::Small, colors_.text, Anchor::Middle);
    }
    if (state_.searching) {
      box(layer, state_.width / 2.0 - 160, at_.top + 8, 320, 28);
      text(layer, state_.width / 2.0 - 148, at_.top + 27, "/" + state_.search + "_", TextSize::Normal, colors_.text);
      text(layer, state_.width / 2.0 + 148, at_.top + 26, "Enter: next", TextSize::Small, colors_.faint_text, Anchor::End);
    }
    if (state_.statistics) statistics_box(layer);
    if (state_.help) help(layer);
    return layer;
  }
  void box(Scene& layer, double x, double y, double width, double height) {
    layer.rects.push_back({.x = x, .y = y, .width = width, .height = height, .fill = colors_.background, .alpha = 242, .outlined = true, .outline = colors_.faint_text});
  }

  void tooltip(Scene& layer) {
    const Hit found = hit(session_, state_, at_, state_.mouse_x, state_.mouse_y);
    std::vector<Fact> facts;
    if (found.op) facts = describe_op(session_, found.op, false);
    else if (found.idle >= 0) facts = describe_idle(session_.at(found.lane->document), found.idle);
    if (facts.empty()) return;
    double name_width = 0, value_width = 0;
    for (const Fact& fact : facts) {
      name_width = std::max(name_width, static_cast<double>(text_width(fact.name, TextSize::Small)));
      value_width = std::max(value_width, static_cast<double>(text_width(fact.value, TextSize::Small)));
    }
    const double width = name_width + value_width + 34, height = 16.0 * static_cast<double>(facts.size()) + 12;
    const double x = std::min(state_.mouse_x + 14, state_.width - width - 4);
    const double y = state_.mouse_y + 18 + height > state_.height ? state_.mouse_y - height - 8 : state_.mouse_y + 18;
    box(layer, x, y, width, height);
    for (std::size_t i = 0; i < facts.size(); ++i) {
      const double line = y + 17 + 16 * static_cast<double>(i);
      text(layer, x + 10, line, facts[i].name, TextSize::Small, i == 0 ? colors_.text : colors_.faint_text);
      text(layer, x + 24 + name_width, line, facts[i].value, TextSize::Small, colors_.text);
    }
  }

  void statistics_box(Scene& layer) {
    const std::vector<KindStatistics>& kinds = session_.at(0).kinds();
    const double width = std::min(900.0, state_.width - 60.0), height = 50 + 30.0 * static_cast<double>(kinds.size());
    const double x = (state_.width - width) / 2, y = at_.top + 10;
    box(layer, x, y, width, height);
    static constexpr std::array<std::string_view, 7> kHeads{"op", "count", "total", "shortest", "median", "longest", "histogram"};
    constexpr std::array<double, 7> kColumns{14, 150, 220, 300, 380, 460, 540};
    for (std::size_t i = 0; i < kHeads.size(); ++i) {
      text(layer, x + kColumns[i], y + 22, std::string(kHeads[i]), TextSize::Small, colors_.faint_text);
    }
    double line = y + 48;
    for (const KindStatistics& kind : kinds) {
      const std::array<std::string, 6> cells{std::string(traits(kind.kind).name) + (kind.payload == Payload::Activation ? "_F" : kind.payload == Payload::Gradient ? "_B" : ""),
                                             std::to_string(kind.count), time_text(kind.total), time_text(kind.shortest), time_text(kind.median), time_text(kind.longest)};
      for (std::size_t i = 0; i < cells.size(); ++i) text(layer, x + kColumns[i], line, cells[i], TextSize::Small, colors_.text);
      const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(kind.histogram));
      const double bin = (width - kColumns[6] - 14) / static_cast<double>(kind.histogram.size());
      for (std::size_t i = 0; i < kind.histogram.size(); ++i) {
        if (kind.histogram[i] == 0) continue;
        const double tall = std::max(1.0, 22.0 * static_cast<double>(kind.histogram[i]) / static_cast<double>(most));
        layer.rects.push_back({.x = x + kColumns[6] + bin * static_cast<double>(i), .y = line + 4 - tall, .width = bin * 0.9, .height = tall, .fill = color_of(kind.kind)});
      }
      line += 30;
    }
  }

  void help(Scene& layer) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 25> kLines{{
        {"W S, Ctrl + wheel", "zoom at the mouse"}, {"A D, Shift + drag, right drag", "pan"}, {"wheel", "scroll the rows"},
        {"V", "the wheel zooms, Ctrl + wheel scrolls"}, {"Home", "the whole step"}, {"1 2 3", "warm-up, steady state, cool-down"},
        {"click", "select an op; of a bubble, the op that ends it"}, {"F, double click", "to the middle, then close"},
        {", .", "previous, next op of the lane"}, {"[ ]", "what came last before it, what it lets go on"},
        {"drag", "measure a range"}, {"M", "measure the selected op"}, {"/ then Enter, N", "search by name"},
        {"C", "critical path"}, {"B", "causes of bubbles"}, {"G", "memory"}, {"L", "links"}, {"H", "other streams"},
        {"click a rank's name", "fold its streams"}, {"T", "statistics per kind"}, {"Shift + D", "errors, where two traces are open"},
        {"Space, click the axis", "play, scrub"}, {"X", "light or dark"}, {"Ctrl + E", "write this view as SVG"}, {"Esc", "close, clear"}}};
    constexpr double kWidth = 560, kLine = 20;
    const double height = kLine * static_cast<double>(kLines.size()) + 44;
    const double x = (state_.width - kWidth) / 2, y = std::max(4.0, (state_.height - height) / 2);
    box(layer, x, y, kWidth, height);
    text(layer, x + 18, y + 26, "Keys and mouse", TextSize::Title, colors_.text);
    for (std::size_t i = 0; i < kLines.size(); ++i) {
      const double line = y + 50 + kLine * static_cast<double>(i);
      text(layer, x + 18, line, std::string(kLines[i].first), TextSize::Normal, colors_.text);
      text(layer, x + 240, line, std::string(kLines[i].second), TextSize::Normal, colors_.faint_text);
    }
  }

  const Session& session_;
  const ViewState& state_;
  Geometry at_;
  Theme theme_;
  const Palette& colors_;
  Scene scene_;
};

}  // namespace

Scene view_scene(const Session& session, const ViewState& state) { return Composer(session, state).draw(); }

}  // namespace rehearse::viz
