#include "viz/paint.h"

#include <algorithm>
#include <array>

namespace rehearse::viz {
namespace {

struct Light {
  float red = 0, green = 0, blue = 0;
  void add(const Light& other, float share) {
    red += other.red * share;
    green += other.green * share;
    blue += other.blue * share;
  }
};

Light light_of(Color c) { return {to_linear(c.red), to_linear(c.green), to_linear(c.blue)}; }

// 12 bits of linear light per channel tell neighbouring sRGB levels apart.
std::uint32_t srgb_of(const Light& light) {
  static const auto kTable = [] {
    std::array<std::uint8_t, 4097> table{};
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = to_srgb(static_cast<float>(i) / 4096.0f);
    }
    return table;
  }();
  const auto level = [](float value) {
    return static_cast<std::uint32_t>(
        kTable[static_cast<std::size_t>(std::clamp(value, 0.0f, 1.0f) * 4096.0f + 0.5f)]);
  };
  return 0xFF000000u | level(light.blue) << 16 | level(light.green) << 8 | level(light.red);
}

// Colour of each column: the mix of what is in it, by its exact share of time, in linear light.
void paint_columns(const Frame& frame, const LaneFrame& lane, const LanePlace& place, Theme theme,
                   Scene& scene) {
  if (!lane.ops.any && !lane.idle.any) return;
  std::array<Light, kNumKinds> lights;
  for (const ColumnTable* table : {&lane.ops, &lane.idle}) {
    for (const Kind kind : table->kinds) lights[kind] = light_of(style_of(kind, theme).fill);
  }
  const Light background = light_of(palette(theme).lane);
  Strip strip{.y = place.y, .height = place.height};
  const std::size_t count = frame.num_columns();
  strip.colors.assign(count, 0);
  std::size_t first = count, last = 0;
  for (std::size_t c = 0; c < count; ++c) {
    const float scale = 1.0f / static_cast<float>(frame.edges[c + 1] - frame.edges[c]);
    Light mix;
    float covered = 0;
    for (const ColumnTable* table : {&lane.ops, &lane.idle}) {
      const auto times = frame.column(*table, c);
      for (std::size_t k = 0; k < times.size(); ++k) {
        if (times[k] == 0) continue;
        const float share = static_cast<float>(times[k]) * scale;
        mix.add(lights[table->kinds[k]], share);
        covered += share;
      }
    }
    if (covered <= 0) continue;
    mix.add(background, std::max(0.0f, 1.0f - covered));
    strip.colors[c] = srgb_of(mix);
    first = std::min(first, c);
    last = c;
  }
  if (first == count) return;
  strip.colors.erase(strip.colors.begin() + static_cast<std::ptrdiff_t>(last) + 1, strip.colors.end());
  strip.colors.erase(strip.colors.begin(), strip.colors.begin() + static_cast<std::ptrdiff_t>(first));
  // Columns of a snapped grid are equal but for the two that the view cuts.
  const View& view = frame.view;
  strip.x = place.x + view.x_of(frame.edges[first]);
  strip.width = place.x + view.x_of(frame.edges[last + 1]) - strip.x;
  if (view.snap && count > 3) {
    const double column = view.x_of(frame.edges[2]) - view.x_of(frame.edges[1]);
    strip.x = place.x + view.x_of(frame.edges[1]) + (static_cast<double>(first) - 1) * column;
    strip.width = column * static_cast<double>(last + 1 - first);
  }
  scene.strips.push_back(std::move(strip));
}

// Where narrow idle spans follow one another, they read as one bubble: the hatch of what most of it
// waits for lies over the mixed colour.
void hatch_idle_runs(const Frame& frame, const LaneFrame& lane, const LanePlace& place, Theme theme,
                     Scene& scene) {
  constexpr std::size_t kShortest = 6;  // columns
  if (!lane.idle.any) return;
  std::array<std::int64_t, kNumKinds> sums{};
  std::size_t begin = 0;
  const auto end_run = [&](std::size_t end) {
    if (end - begin >= kShortest) {
      const auto most = std::ranges::max_element(sums) - sums.begin();
      const KindStyle style = style_of(static_cast<Kind>(most), theme);
      const double x = place.x + frame.view.x_of(frame.edges[begin]);
      scene.rects.push_back({.x = x, .y = place.y,
                             .width = place.x + frame.view.x_of(frame.edges[end]) - x,
                             .height = place.height, .fill = style.fill, .alpha = 0,
                             .hatch = style.hatch, .ink = style.ink});
    }
    sums.fill(0);
    begin = end + 1;
  };
  for (std::size_t c = 0; c < frame.num_columns(); ++c) {
    const auto times = frame.column(lane.idle, c);
    std::int64_t idle = 0;
    for (std::size_t k = 0; k < times.size(); ++k) {
      sums[lane.idle.kinds[k]] += times[k];
      idle += times[k];
    }
    if (idle * 10 < (frame.edges[c + 1] - frame.edges[c]) * 9) end_run(c);
  }
  end_run(frame.num_columns());
}

Color darker(Color c) {
  const auto scale = [](std::uint8_t v) { return static_cast<std::uint8_t>(v * 62 / 100); };
  return {scale(c.red), scale(c.green), scale(c.blue)};
}

// The longest of "3F12", "F12", "12" that fits.
std::string label_for(const Trace& trace, OpId op, double width) {
  const std::string name = op_name(trace, op);
  if (!fitting(name, TextSize::Small, width).empty()) return name;
  const TraceClass& c = trace.class_of(op);
  if (c.name >= 0) return {};
  const std::int32_t microbatch = trace.microbatch[op.index()];
  std::string number = microbatch >= 0 ? std::to_string(microbatch) : std::string{};
  std::string shorter = std::string(traits(c.kind).name) + number;
  if (c.kind == OpKind::Overlap) shorter = number + "|" + std::to_string(trace.partner[op.index()]);
  if (!fitting(shorter, TextSize::Small, width).empty()) return shorter;
  return std::string(fitting(number, TextSize::Small, width));
}

void paint_box(const Trace& trace, const Box& box, const View& view, const LanePlace& place,
               Theme theme, Scene& scene) {
  const double x = place.x + view.x_of(box.begin);
  const double width = place.x + view.x_of(box.end) - x;
  const KindStyle style = style_of(box.kind, theme);
  Rect rect{.x = x, .y = place.y, .width = width, .height = place.height, .fill = style.fill,
            .hatch = style.hatch, .ink = style.ink};
  const OpId op{box.idle ? -1 : box.item};
  if (op) {
    rect.fill = shade(style.fill, trace.microbatch[op.index()]);
    rect.outlined = width >= 5 && place.height >= 7;
    rect.outline = darker(style.fill);
  }
  scene.rects.push_back(rect);
  if (place.height < 11 || width < 9) return;
  const double middle = x + width / 2, base = place.y + place.height / 2 + 4;
  if (op) {
    const std::string label = label_for(trace, op, width - 4);
    if (!label.empty()) {
      scene.texts.push_back({.x = middle, .y = base, .anchor = Anchor::Middle,
                             .size = TextSize::Small, .color = text_on(rect.fill), .text = label});
    }
    return;
  }
  const std::int32_t text = text_width(style.name, TextSize::Small);
  if (text + 12 > width || place.height < 15) return;
  scene.rects.push_back({.x = middle - text / 2.0 - 4, .y = place.y + place.height / 2 - 7,
                         .width = text + 8.0, .height = 14, .fill = style.fill, .alpha = 235});
  scene.texts.push_back({.x = middle, .y = base, .anchor = Anchor::Middle, .size = TextSize::Small,
                         .color = palette(theme).text, .text = std::string(style.name)});
}

}  // namespace

void paint_lane(const TraceIndex& index, const Frame& frame, const LaneFrame& lane,
                const LanePlace& place, Theme theme, Scene& scene) {
  scene.plates.push_back({.x = place.x, .y = place.y,
                          .width = static_cast<double>(frame.view.width_px), .height = place.height,
                          .fill = palette(theme).lane});
  paint_columns(frame, lane, place, theme, scene);
  hatch_idle_runs(frame, lane, place, theme, scene);
  for (const Box& box : frame.boxes_of(lane)) {
    paint_box(index.trace(), box, frame.view, place, theme, scene);
  }
}

}  // namespace rehearse::viz
