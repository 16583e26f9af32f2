// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/charts/chart.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rehearse::viz {
namespace {

// The chunk of its position that an op belongs to: 0 for the first that a micro-batch visits, or
// for the downward one of two directions.
std::int32_t chunk_of(const Schedule& schedule, const Op& op) {
  const Placement& placement = schedule.placement;
  if (!placement.up.empty()) return op.microbatch.value < placement.first_up ? 0 : 1;
  return op.stage.value / std::max(1, placement.positions);
}

const Op& work_of(const Schedule& schedule, const Op& op, std::size_t child) {
  return op.kind == OpKind::Overlap ? schedule.children[static_cast<std::size_t>(op.child) + child]
                                    : op;
}

char letter_of(const Schedule& schedule, const Op& op) {
  if (op.kind == OpKind::Overlap) return 'X';
  const char letter = traits(op.kind).name.front();
  return chunk_of(schedule, op) > 0 ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::string label_of(const Schedule& schedule, const Op& op) {
  std::string label;
  for (std::size_t child = 0; child < (op.kind == OpKind::Overlap ? 2U : 1U); ++child) {
    const Op& work = work_of(schedule, op, child);
    label += letter_of(schedule, work) + std::to_string(work.microbatch.value);
    if (work.slice >= 0) label += '.' + std::to_string(work.slice);
  }
  return label;
}

std::string background(Color color) {
  const auto number = [](std::uint8_t part) { return std::to_string(part); };
  const Color ink = text_on(color);
  return "\x1b[48;2;" + number(color.red) + ';' + number(color.green) + ';' + number(color.blue) +
         ";38;2;" + number(ink.red) + ';' + number(ink.green) + ';' + number(ink.blue) + 'm';
}

// The picture, in pixels.
constexpr double kLeft = 34, kTop = 30, kRow = 20, kGap = 3, kMargin = 8, kNarrow = 1.2;

// Times to columns: a whole number of columns per unit where the line has room for it, so that
// equal ops look equal; else in proportion.
class Scale {
 public:
  Scale(const ComputeTiming& timing, std::int64_t columns) : total_(timing.makespan.value) {
    std::int64_t unit = 0;
    for (const Nanoseconds time : timing.end) unit = std::gcd(unit, time.value);
    for (const Nanoseconds time : timing.start) unit = std::gcd(unit, time.value);
    columns_ = columns;
    if (unit > 0 && total_ / unit <= columns) {
      columns_ = std::min<std::int64_t>(columns / (total_ / unit), kMostPerUnit) * (total_ / unit);
    }
  }
  std::int64_t column(Nanoseconds time) const {
    if (total_ == 0) return 0;
    return std::llround(static_cast<double>(time.value) * static_cast<double>(columns_) /
                        static_cast<double>(total_));
  }
  std::int64_t columns() const { return columns_; }

 private:
  static constexpr std::int64_t kMostPerUnit = 4;
  std::int64_t total_, columns_;
};

}  // namespace

std::string chart(const Schedule& schedule, const ComputeTiming& timing,
                  const ChartOptions& options) {
  const std::size_t digits = std::to_string(std::max(0, schedule.num_rows() - 1)).size();
  const std::int64_t room = options.columns - static_cast<std::int64_t>(digits) - 2;
  if (room < 1) return {};
  const Scale scale(timing, room);
  std::string text;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    std::string number = std::to_string(row.value);
    text += 'r';
    text += number;
    text.append(digits - number.size() + 1, ' ');
    std::int64_t at = 0;
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      const Op& op = schedule.ops[i];
      const std::int64_t begin = scale.column(timing.start[i]), end = scale.column(timing.end[i]);
      if (end <= begin || begin < at) continue;  // too narrow for a character
      text.append(static_cast<std::size_t>(begin - at), '.');
      std::string cell = label_of(schedule, op);
      const auto width = static_cast<std::size_t>(end - begin);
      if (cell.size() > width) cell.assign(1, letter_of(schedule, op));
      cell.resize(width, '-');
      if (options.color) {
        std::ranges::replace(cell, '-', ' ');
        const Color color = shade(color_of(work_of(schedule, op, 0).kind), op.microbatch.value);
        text += background(color);
        cell += "\x1b[0m";
      }
      text += cell;
      at = end;
    }
    text.append(static_cast<std::size_t>(scale.columns() - at), '.');
    text += '\n';
  }
  return text;
}

Scene chart_scene(const Schedule& schedule, const ComputeTiming& timing, const std::string& title,
                  std::int32_t width) {
  const Palette& colors = palette(Theme::Light);
  Scene scene{
      .width = width,
      .height = static_cast<std::int32_t>(kTop + schedule.num_rows() * (kRow + kGap) + kMargin),
      .background = colors.background,
      .title = title};
  const double room = width - kLeft - kMargin;
  const auto x_of = [&](Nanoseconds time) {
    return timing.makespan.value == 0 ? kLeft
                                      : kLeft + room * static_cast<double>(time.value) /
                                                    static_cast<double>(timing.makespan.value);
  };
  scene.texts.push_back({.x = kLeft, .y = 19, .color = colors.text, .text = title});
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const double y = kTop + row.value * (kRow + kGap);
    scene.plates.push_back(
        {.x = kLeft, .y = y, .width = room, .height = kRow, .fill = colors.lane});
    scene.texts.push_back({.x = kLeft - 6,
                           .y = y + kRow - 6,
                           .anchor = Anchor::End,
                           .size = TextSize::Small,
                           .color = colors.faint_text,
                           .text = "r" + std::to_string(row.value)});
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      const Op& op = schedule.ops[i];
      if (!is_compute(op.kind)) continue;  // an exchange, which takes no time here
      const double x = x_of(timing.start[i]), end = x_of(timing.end[i]);
      // A pair is two halves, one above the other.
      const std::size_t parts = op.kind == OpKind::Overlap ? 2 : 1;
      for (std::size_t part = 0; part < parts; ++part) {
        const Op& work = work_of(schedule, op, part);
        const double height = kRow / static_cast<double>(parts);
        Color fill = shade(color_of(work.kind), work.microbatch.value);
        // Later chunks are darker: they lie deeper in the model.
        if (chunk_of(schedule, work) > 0) {
          const auto darker = [](std::uint8_t c) { return static_cast<std::uint8_t>(c * 3 / 4); };
          fill = {darker(fill.red), darker(fill.green), darker(fill.blue)};
        }
        const double top = y + height * static_cast<double>(part);
        scene.rects.push_back({.x = x,
                               .y = top,
                               .width = std::max(end - x - 0.6, kNarrow / 2),
                               .height = height - 0.6,
                               .fill = fill});
        const std::string label = std::to_string(work.microbatch.value);
        const std::string_view fits = fitting(label, TextSize::Small, end - x - 2);
        if (parts == 1 && !fits.empty()) {
          scene.texts.push_back({.x = (x + end) / 2,
                                 .y = top + height - 6,
                                 .anchor = Anchor::Middle,
                                 .size = TextSize::Small,
                                 .color = text_on(fill),
                                 .text = std::string(fits)});
        }
      }
    }
  }
  return scene;
}

}  // namespace rehearse::viz
