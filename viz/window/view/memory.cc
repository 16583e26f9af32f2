// SPDX-License-Identifier: Apache-2.0
// One rank's memory, large: the curve over the time in view, what is alive at a moment and at the
// peak, and our executor's arena as a map of addresses over time.
#include <algorithm>

#include "schedules/trace/trace_inside.h"
#include "viz/analysis/inside.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/paint_curves.h"
#include "viz/window/describe.h"
#include "viz/window/view/context.h"

namespace rehearse::viz {
namespace {

constexpr double kSide = 14, kMemoryLine = 16, kHead = 44;

// The map of the arena: a rectangle per value, from the begin of its life to its end, as tall as it
// is large. What lies under the mouse is told.
void draw_map(const ViewContext& c, Scene& layer, const Document& document, std::int32_t row,
              const View& view, const CurvePlace& place) {
  const Trace& trace = document.trace();
  const std::vector<ArenaBlock>& blocks = document.arena(row);
  const auto top = static_cast<double>(std::max<std::int64_t>(1, arena_bytes(blocks)));
  Scene map;
  map.clip_x = place.x;
  map.clip_y = place.y;
  map.clip_width = view.width_px;
  map.clip_height = place.height;
  map.plates.push_back({.x = place.x,
                        .y = place.y,
                        .width = static_cast<double>(view.width_px),
                        .height = place.height,
                        .fill = c.colors.lane});
  const ArenaBlock* under = nullptr;
  for (const ArenaBlock& block : blocks) {
    if (block.end <= view.begin.value || block.begin >= view.end.value) continue;
    const double x = place.x + std::max(0.0, view.x_of(block.begin));
    const double end = place.x + std::min<double>(view.width_px, view.x_of(block.end));
    const double height = static_cast<double>(block.bytes) / top * place.height;
    const double y = place.y + place.height -
                     static_cast<double>(block.offset + block.bytes) / top * place.height;
    const bool large = end - x >= 4 && height >= 4;
    map.rects.push_back({.x = x,
                         .y = y,
                         .width = std::max(0.5, end - x),
                         .height = std::max(0.5, height),
                         .fill = memory_color(block.part),
                         .outlined = large,
                         .outline = c.colors.lane});
    if (c.state.mouse_x >= x && c.state.mouse_x < end && c.state.mouse_y >= y &&
        c.state.mouse_y < y + height) {
      under = &block;
    }
    if (height < 13 || end - x < 24) continue;
    const std::string name = value_name(trace, block.value);
    if (fitting(name, TextSize::Small, end - x - 6).empty()) continue;
    add_text(map, (x + end) / 2, y + height / 2 + 4, name, TextSize::Small,
             text_on(memory_color(block.part)), Anchor::Middle);
  }
  layer.layers.push_back(std::move(map));
  if (under == nullptr) return;
  const auto since = [&](std::int64_t time) { return time_text(time - trace.begin.value); };
  const std::vector<Fact> facts{{value_name(trace, under->value), trace.memory_parts[under->part]},
                                {"bytes", bytes_text(under->bytes)},
                                {"address", bytes_text(under->offset) + " into the arena"},
                                {"alive", since(under->begin) + " to " + since(under->end)}};
  layer.layers.emplace_back();
  draw_facts(c, layer.layers.back(), facts);
}

// Parts, then the largest values, at a moment and at the peak; in one unit.
void draw_inventory(const ViewContext& c, Scene& layer, const Document& document,
                    const MemoryAt& at, double x, double y, double width, double bottom) {
  const Trace& trace = document.trace();
  const MemoryCurve& curve = document.memory(at.row);
  const MemoryPeak& peak = curve.peak();
  const std::int64_t time = trace.begin.value + at.since;
  const std::int64_t sample = curve.at(time);
  const double now_x = x + width * 0.72, peak_x = x + width;
  const auto line = [&](const std::string& name, const std::string& now, const std::string& most,
                        Color color) {
    add_text(layer, x + 20, y, clipped(name, TextSize::Small, width * 0.72 - 80), TextSize::Small,
             color);
    add_text(layer, now_x, y, now, TextSize::Small, color, Anchor::End);
    add_text(layer, peak_x, y, most, TextSize::Small, color, Anchor::End);
    y += kMemoryLine;
  };
  const auto bytes = [&](std::int64_t value) { return bytes_text(value, peak.bytes); };
  line("alive", "at " + time_text(at.since), "at the peak", c.colors.faint_text);
  for (std::size_t part = 0; part < trace.memory_parts.size(); ++part) {
    const std::int64_t now =
        sample < 0
            ? 0
            : trace.memory_bytes[static_cast<std::size_t>(sample) * trace.memory_parts.size() +
                                 part];
    if (now == 0 && peak.parts[part] == 0) continue;
    layer.rects.push_back(
        {.x = x, .y = y - 9, .width = 12, .height = 10, .fill = memory_color(part)});
    line(trace.memory_parts[part], bytes(now), bytes(peak.parts[part]), c.colors.text);
  }
  line("all", bytes(sample < 0 ? 0 : curve.sum(sample)), bytes(peak.bytes), c.colors.text);
  const std::int64_t capacity = trace.rows[static_cast<std::size_t>(at.row)].capacity_bytes;
  if (capacity > 0) line("of the device's", "", bytes_text(capacity), c.colors.faint_text);
  const std::vector<std::int32_t> alive = alive_at(trace, {at.row}, peak.time);
  if (alive.empty()) return;
  y += kMemoryLine / 2;
  line("largest of " + std::to_string(alive.size()) + " values at the peak", "", "",
       c.colors.faint_text);
  for (const std::int32_t value : alive) {
    if (y > bottom) break;
    line(value_name(trace, value), "", bytes(trace.values[static_cast<std::size_t>(value)].bytes),
         c.colors.text);
  }
}

}  // namespace

void draw_memory_box(const ViewContext& c, Scene& layer) {
  const MemoryAt& at = *c.state.memory_at;
  const Document& document = c.session.at(at.document);
  const Trace& trace = document.trace();
  const double width = std::min(1400.0, c.state.width - 40.0);
  const double x = (c.state.width - width) / 2, y = c.at.top + 10;
  const double height = std::max(160.0, c.at.panel_y - y - 10);
  const MemoryPeak& peak = document.memory(at.row).peak();
  draw_box(c, layer, x, y, width, height);
  add_text(layer, x + kSide, y + 24, "Memory of " + row_name(trace, {at.row}), TextSize::Title,
           c.colors.text);
  add_text(layer, x + width - kSide, y + 24,
           "at most " + bytes_text(peak.bytes) + ", at " + time_text(peak.time - trace.begin.value),
           TextSize::Normal, c.colors.faint_text, Anchor::End);
  const double right = width * 0.34;
  const bool map = !document.arena(at.row).empty();
  const double room = height - kHead - kSide, tall = map ? (room - kMemoryLine) / 2 : room;
  View view{
      .begin = {c.at_ns(at.document, c.state.begin)},
      .end = {std::max(c.at_ns(at.document, c.state.begin) + 1, c.at_ns(at.document, c.state.end))},
      .width_px = static_cast<std::int32_t>(width - right - 2 * kSide),
      .snap = true};
  Frame frame;
  layout(document.index(), view, {}, frame);
  const CurvePlace curve{.x = x + kSide, .y = y + kHead, .height = tall};
  layer.layers.emplace_back();
  paint_memory(trace, {at.row}, document.memory(at.row), frame, curve, c.theme,
               layer.layers.back());
  const double moment = curve.x + view.x_of(trace.begin.value + at.since);
  if (moment >= curve.x && moment <= curve.x + view.width_px) {
    layer.layers.back().lines.push_back({.x1 = moment,
                                         .y1 = curve.y,
                                         .x2 = moment,
                                         .y2 = y + height - kSide,
                                         .width = 1,
                                         .color = c.colors.text,
                                         .alpha = 160});
  }
  draw_inventory(c, layer, document, at, x + width - right, y + kHead + 10, right - kSide,
                 y + height - kSide);
  if (!map) return;
  const double below = curve.y + tall + kMemoryLine;
  add_text(layer, curve.x, below - 4,
           "arena: address over time, " + bytes_text(arena_bytes(document.arena(at.row))),
           TextSize::Small, c.colors.faint_text);
  draw_map(c, layer, document, at.row, view, {.x = curve.x, .y = below, .height = tall});
}

}  // namespace rehearse::viz
