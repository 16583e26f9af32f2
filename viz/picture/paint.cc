// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/paint.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace rehearse::viz {
namespace {

// Linear light; the fourth lane counts the share that is covered.
using Light = float __attribute__((vector_size(16)));

Light light_of(Color c) {
  return Light{to_linear(c.red), to_linear(c.green), to_linear(c.blue), 1.0f};
}

// 12 bits of linear light per channel tell neighbouring sRGB levels apart.
class SrgbTable {
 public:
  SrgbTable() {
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      levels_[i] = to_srgb(static_cast<float>(i) / 4096.0f);
    }
  }
  // Channels are sums of shares: 0 to 1, and what rounding adds.
  std::uint32_t pack(const Light& light) const {
    const Level at = __builtin_convertvector(light * 4096.0f + 0.5f, Level);
    const auto level = [&](int channel) {
      return static_cast<std::uint32_t>(levels_[static_cast<std::size_t>(at[channel])]);
    };
    return 0xFF000000u | level(2) << 16 | level(1) << 8 | level(0);
  }

 private:
  using Level = std::int32_t __attribute__((vector_size(16)));
  std::array<std::uint8_t, 4098> levels_{};
};

// Finds runs of columns that idle nearly all the time. Narrow idle spans that follow one another
// read as one bubble: the hatch of what most of it waits for lies over the mixed colour.
class IdleRuns {
 public:
  IdleRuns(const Frame& frame, const LaneFrame& lane, const LanePlace& place, Theme theme,
           Scene& scene)
      : frame_(frame), lane_(lane), place_(place), theme_(theme), scene_(scene) {}

  void add(std::size_t column, bool idles) {
    if (!idles) {
      end(column);
      begin_ = column + 1;
    }
  }
  void end(std::size_t column) {
    constexpr std::size_t kShortest = 6;  // columns
    if (column < begin_ + kShortest) return;
    std::array<std::int64_t, kNumKinds> sums{};
    for (std::size_t c = begin_; c < column; ++c) {
      const auto times = frame_.column(lane_.idle, c);
      for (std::size_t k = 0; k < times.size(); ++k) sums[lane_.idle.kinds[k]] += times[k];
    }
    const auto most = std::ranges::max_element(sums) - sums.begin();
    const KindStyle style = style_of(static_cast<Kind>(most), theme_);
    const double x = place_.x + frame_.view.x_of(frame_.edges[begin_]);
    scene_.rects.push_back({.x = x,
                            .y = place_.y,
                            .width = place_.x + frame_.view.x_of(frame_.edges[column]) - x,
                            .height = place_.height,
                            .fill = style.fill,
                            .alpha = 0,
                            .hatch = style.hatch,
                            .ink = style.ink});
  }

 private:
  const Frame& frame_;
  const LaneFrame& lane_;
  const LanePlace& place_;
  Theme theme_;
  Scene& scene_;
  std::size_t begin_ = 0;
};

// Adds time * light over the kinds of a column. A function of its own: in the loop over columns,
// which calls others, a compiler writes and reads the sum in memory for every kind.
[[gnu::noinline]] Light mix(Light light, const std::int64_t* times, std::size_t kinds,
                            const Light* lights, float scale) {
  for (std::size_t k = 0; k < kinds; ++k) {
    light += lights[k] * (static_cast<float>(times[k]) * scale);
  }
  return light;
}

std::vector<Light> lights_of(const ColumnTable& table, const Coloring& coloring, Theme theme) {
  std::vector<Light> lights;
  for (const Kind kind : table.kinds) lights.push_back(light_of(coloring.style(kind, theme).fill));
  return lights;
}

// Colour of each column: the mix of what is in it, by its exact share of time, in linear light.
void paint_columns(const Coloring& coloring, const Frame& frame, const LaneFrame& lane,
                   const LanePlace& place, Theme theme, Scene& scene) {
  if (!lane.ops.any && !lane.idle.any) return;
  const std::vector<Light> op_lights = lights_of(lane.ops, coloring, theme),
                           idle_lights = lights_of(lane.idle, coloring, theme);
  const Light background = light_of(palette(theme).lane);
  const std::size_t count = frame.num_columns();
  const std::size_t num_ops = lane.ops.any ? op_lights.size() : 0;
  const std::size_t num_idle = lane.idle.any ? idle_lights.size() : 0;
  const std::int64_t* ops = frame.time.data() + lane.ops.offset;
  const std::int64_t* idle = frame.time.data() + lane.idle.offset;
  Strip strip{.y = place.y, .height = place.height};
  strip.colors.resize(count);
  static const SrgbTable kTable;
  const SrgbTable& table = kTable;
  IdleRuns runs(frame, lane, place, theme, scene);
  std::size_t first = count, last = 0;
  for (std::size_t c = 0; c < count; ++c, ops += num_ops, idle += num_idle) {
    const std::int64_t width = frame.edges[c + 1] - frame.edges[c];
    const float scale = 1.0f / static_cast<float>(width);
    const std::int64_t waits = std::accumulate(idle, idle + num_idle, std::int64_t{0});
    runs.add(c, waits * 10 >= width * 9);
    if (waits + std::accumulate(ops, ops + num_ops, std::int64_t{0}) == 0) continue;
    Light sum = mix(Light{}, ops, num_ops, op_lights.data(), scale);
    sum = mix(sum, idle, num_idle, idle_lights.data(), scale);
    const float bare = 1.0f - sum[3];
    strip.colors[c] = table.pack(sum + background * (bare > 0 ? bare : 0.0f));
    first = std::min(first, c);
    last = c;
  }
  runs.end(count);
  if (first == count) return;
  strip.colors.resize(last + 1);
  strip.colors.erase(strip.colors.begin(),
                     strip.colors.begin() + static_cast<std::ptrdiff_t>(first));
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

Color darker(Color c) {
  const auto scale = [](std::uint8_t v) { return static_cast<std::uint8_t>(v * 62 / 100); };
  return {scale(c.red), scale(c.green), scale(c.blue)};
}

// What an op is made of, within its outline; of a box that the view cuts, its part.
void paint_stripes(const Trace& trace, const Coloring& coloring, const Box& box, const Rect& whole,
                   Scene& scene) {
  const OpId op{box.item};
  const std::int64_t start = trace.start_ns[op.index()], end = trace.end_ns[op.index()];
  const auto x_of = [&](double share) {
    const double at = static_cast<double>(start) + share * static_cast<double>(end - start);
    const double from =
        (at - static_cast<double>(box.begin)) / static_cast<double>(box.end - box.begin);
    return whole.x + whole.width * std::clamp(from, 0.0, 1.0);
  };
  const double edge = whole.outlined ? 1 : 0;
  double x = x_of(0);
  for (const Coloring::Stripe& stripe : coloring.stripes(op)) {
    const double to = x_of(stripe.end);
    if (to - x >= 0.5) {
      scene.rects.push_back({.x = x,
                             .y = whole.y + edge,
                             .width = to - x,
                             .height = whole.height - 2 * edge,
                             .fill = stripe.fill});
    }
    x = to;
  }
}

void paint_box(const Trace& trace, const Coloring& coloring, const Box& box, const View& view,
               const LanePlace& place, Theme theme, bool op_labels, Scene& scene) {
  const double x = place.x + view.x_of(box.begin);
  const double width = place.x + view.x_of(box.end) - x;
  const KindStyle style = coloring.style(box.kind, theme);
  Rect rect{.x = x,
            .y = place.y,
            .width = width,
            .height = place.height,
            .fill = style.fill,
            .hatch = style.hatch,
            .ink = style.ink};
  const OpId op{box.idle ? -1 : box.item};
  if (op) {
    rect.fill = coloring.fill(op, box.kind, theme);
    rect.outlined = width >= 5 && place.height >= 7;
    rect.outline = darker(style.fill);
  }
  scene.rects.push_back(rect);
  if (op && width >= 5) paint_stripes(trace, coloring, box, rect, scene);
  if (op && !trace.communicating_ns.empty() && width >= 5 && place.height >= 8) {
    const auto i = op.index();
    const auto whole = static_cast<double>(trace.end_ns[i] - trace.start_ns[i]);
    const double waits = width * static_cast<double>(trace.communicating_ns[i]) / whole;
    const double bar = std::max(3.0, place.height / 8);
    if (waits >= 0.5) {
      scene.rects.push_back({.x = x,
                             .y = place.y + place.height - bar,
                             .width = std::min(waits, width),
                             .height = bar,
                             .fill = in_body_color()});
    }
  }
  if (!op_labels || place.height < 11 || width < 9) return;
  const double middle = x + width / 2, base = place.y + place.height / 2 + 4;
  if (op && box.kind != Coloring::kNotKept) {
    const std::string label = label_for(trace, coloring, op, width - 4);
    if (!label.empty()) {
      scene.texts.push_back({.x = middle,
                             .y = base,
                             .anchor = Anchor::Middle,
                             .size = TextSize::Small,
                             .color = text_on(rect.fill),
                             .text = label});
    }
  }
}

// Bubbles of one cause with slivers of others between them have one label.
void label_bubbles(std::span<const Box> boxes, const View& view, const LanePlace& place,
                   Theme theme, Scene& scene) {
  constexpr double kSliver = 4;  // [px]
  if (place.height < 15) return;
  for (std::size_t i = 0; i < boxes.size() && boxes[i].idle;) {
    std::size_t j = i + 1;
    while (j < boxes.size() && boxes[j].idle && boxes[j].kind == boxes[i].kind &&
           view.x_of(boxes[j].begin) - view.x_of(boxes[j - 1].end) <= kSliver) {
      ++j;
    }
    const double begin = place.x + view.x_of(boxes[i].begin),
                 end = place.x + view.x_of(boxes[j - 1].end);
    const KindStyle style = style_of(boxes[i].kind, theme);
    i = j;
    const std::int32_t text = text_width(style.name, TextSize::Small);
    if (text + 12 > end - begin) continue;
    const double middle = (begin + end) / 2;
    scene.rects.push_back({.x = middle - text / 2.0 - 4,
                           .y = place.y + place.height / 2 - 7,
                           .width = text + 8.0,
                           .height = 14,
                           .fill = style.fill,
                           .alpha = 235});
    scene.texts.push_back({.x = middle,
                           .y = place.y + place.height / 2 + 4,
                           .anchor = Anchor::Middle,
                           .size = TextSize::Small,
                           .color = palette(theme).text,
                           .text = std::string(style.name)});
  }
}

}  // namespace

Color in_body_color() {
  return color_of(OpKind::AllReduce);
}

std::string label_for(const Trace& trace, const Coloring& coloring, OpId op, double width) {
  std::string name = op_name(trace, op);
  if (!fitting(name, TextSize::Small, width).empty()) return name;
  const TraceClass& c = trace.class_of(op);
  const bool told =
      !coloring.has_chunks() || coloring.by() == ColorBy::Kinds || coloring.by() == ColorBy::Chunk;
  if (c.name >= 0 || !told) return {};
  const std::int32_t microbatch = trace.microbatch[op.index()];
  const std::string number = microbatch >= 0 ? std::to_string(microbatch) : std::string{};
  std::string_view shorter =
      std::string_view(name).substr(std::min(name.find_first_not_of("0123456789"), name.size()));
  std::string pair;
  if (c.kind == OpKind::Overlap) {
    pair = number + "|" + std::to_string(trace.partner[op.index()]);
    shorter = pair;
  }
  if (!fitting(shorter, TextSize::Small, width).empty()) return std::string(shorter);
  // The number alone says whose it is where the colour says what is done; of an op that is a part
  // of its stage, which part.
  const std::string whole = std::string(traits(c.kind).name) + number;
  if (coloring.by() != ColorBy::Kinds || !shorter.starts_with(whole)) return {};
  const std::string_view part = shorter.substr(whole.size());
  if (!part.empty() && part[0] != '[') return {};
  return std::string(
      fitting(part.empty() ? std::string_view(number) : part, TextSize::Small, width));
}

void paint_lane(const TraceIndex& index, const Coloring& coloring, const Frame& frame,
                const LaneFrame& lane, const LanePlace& place, Theme theme, Scene& scene,
                Labels labels) {
  scene.plates.push_back({.x = place.x,
                          .y = place.y,
                          .width = static_cast<double>(frame.view.width_px),
                          .height = place.height,
                          .fill = palette(theme).lane});
  paint_columns(coloring, frame, lane, place, theme, scene);
  for (const Box& box : frame.boxes_of(lane)) {
    paint_box(index.trace(), coloring, box, frame.view, place, theme, labels == Labels::All, scene);
  }
  if (labels != Labels::None) label_bubbles(frame.boxes_of(lane), frame.view, place, theme, scene);
}

}  // namespace rehearse::viz
