// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/experts/expert_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "viz/analysis/units_text.h"
#include "viz/picture/font.h"

namespace rehearse::viz {
namespace {

constexpr Color kFewer{0, 114, 178}, kMore{213, 94, 0};  // Okabe and Ito's blue and vermilion
constexpr double kDoublings = 2;                         // to either end of the scale
constexpr double kLine = 16;                             // from a line of small text to the next

std::uint32_t packed(Color c) {
  return 0xFF000000u | static_cast<std::uint32_t>(c.blue) << 16 |
         static_cast<std::uint32_t>(c.green) << 8 | c.red;
}

// In the numbers of the screen, where equal steps look equal: a scale, not light that adds up.
Color mix(Color from, Color to, double share) {
  const auto channel = [&](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + share * (b - a)));
  };
  return {channel(from.red, to.red), channel(from.green, to.green), channel(from.blue, to.blue)};
}

class Map {
 public:
  Map(const ExpertRows& rows, const ExpertGrid& grid, Theme theme, Scene& scene)
      : rows_(rows), grid_(grid), theme_(theme), colors_(palette(theme)), scene_(scene) {}

  double draw() {
    for (std::int32_t layer = 0; layer < rows_.layers(); ++layer) {
      cells(layer);
      names(layer);
    }
    text(grid_.x() + grid_.width() + kExpertsRight, grid_.layer_y(0) - 8, "busiest",
         TextSize::Small, colors_.faint_text, Anchor::End);
    y_ = grid_.layer_y(0) + grid_.height();
    steps();
    curve();
    legend();
    return y_;
  }

 private:
  void text(double x, double y, std::string what, TextSize size, Color color,
            Anchor anchor = Anchor::Begin) {
    scene_.texts.push_back(
        {.x = x, .y = y, .anchor = anchor, .size = size, .color = color, .text = std::move(what)});
  }
  StepRange all() const { return {0, rows_.steps()}; }
  Color color_of_rows(std::int64_t rows, double over_mean) const {
    return rows == 0 ? colors_.text : color_of_share(over_mean, theme_);
  }

  void cells(std::int32_t layer) {
    for (std::int32_t part = 0; part < grid_.parts(); ++part) {
      Strip strip{.x = grid_.x(),
                  .y = grid_.layer_y(layer) + part * grid_.row_height(),
                  .width = grid_.width(),
                  .height = grid_.row_height()};
      for (std::int32_t c = 0; c < grid_.columns(); ++c) {
        const StepRange steps = grid_.column(c);
        strip.colors.push_back(
            packed(color_of_rows(rows_.rows(steps, layer, part, grid_.parts()),
                                 rows_.over_mean(steps, layer, part, grid_.parts()))));
      }
      scene_.strips.push_back(std::move(strip));
    }
  }

  // The layer, its ranks and its rows where they are high enough for a line of text.
  void names(std::int32_t layer) {
    const double top = grid_.layer_y(layer), row = grid_.row_height();
    const double rank_height = row * grid_.parts() / rows_.ranks();
    const bool ranks = rows_.ranks() > 1;
    if (grid_.layer_height() >= 12 ||
        layer % static_cast<std::int32_t>(std::ceil(12 / grid_.layer_height())) == 0) {
      text(grid_.x() - kExpertsLeft + 4, top + 10,
           "layer " + std::to_string(rows_.layer_number(layer)), TextSize::Small, colors_.text);
    }
    for (std::int32_t rank = 0; ranks && rank < rows_.ranks(); ++rank) {
      const double y = top + rank * rank_height;
      if (rank > 0) {
        scene_.lines.push_back({.x1 = grid_.x() - 6,
                                .y1 = y,
                                .x2 = grid_.x() + grid_.width(),
                                .y2 = y,
                                .width = 1,
                                .color = colors_.background});
      }
      if (rank_height >= 12) {
        text(grid_.x() - 28, y + std::min(rank_height / 2 + 4, 12.0),
             "rank " + std::to_string(rank), TextSize::Small, colors_.faint_text, Anchor::End);
      }
    }
    const std::int32_t each = rows_.experts() / grid_.parts();
    for (std::int32_t part = 0; row >= 11 && part < grid_.parts(); ++part) {
      text(grid_.x() - 6, top + part * row + row / 2 + 4, std::to_string(part * each),
           TextSize::Small, colors_.faint_text, Anchor::End);
    }
    text(grid_.x() + grid_.width() + kExpertsRight, top + 10,
         factor_text(rows_.busiest(all(), layer, rows_.parts_that_wait())), TextSize::Small,
         colors_.text, Anchor::End);
  }

  static std::string factor_text(double factor) { return fixed_text(factor, 2) + " ×"; }

  void steps() {
    const double column = grid_.width() / rows_.steps();
    const auto every = std::max<std::int64_t>(1, nice_step(44 / column));
    for (std::int32_t step = 0; step < rows_.steps(); ++step) {
      const std::int32_t number = rows_.step_number(step);
      if (number % every != 0) continue;
      text(grid_.x() + (step + 0.5) * column, y_ + 14, std::to_string(number), TextSize::Small,
           colors_.faint_text, Anchor::Middle);
    }
    text(grid_.x() - 6, y_ + 14, "step", TextSize::Small, colors_.faint_text, Anchor::End);
    y_ += 20;
  }

  double mean_busiest(StepRange steps) const {
    double sum = 0;
    for (std::int32_t layer = 0; layer < rows_.layers(); ++layer) {
      sum += rows_.busiest(steps, layer, rows_.parts_that_wait());
    }
    return sum / rows_.layers();
  }

  // The busiest over the mean, mean of the layers: the line at the foot is 1, nobody waits.
  void curve() {
    constexpr double kHeight = 40;
    double most = 1.1;
    std::vector<double> values;
    for (std::int32_t c = 0; c < grid_.columns(); ++c) {
      values.push_back(mean_busiest(grid_.column(c)));
      most = std::max(most, values.back());
    }
    const double base = y_ + kHeight;
    scene_.plates.push_back(
        {.x = grid_.x(), .y = y_, .width = grid_.width(), .height = kHeight, .fill = colors_.lane});
    Area area{.base = static_cast<float>(base),
              .end = static_cast<float>(grid_.x() + grid_.width()),
              .fill = kMore,
              .alpha = 200};
    for (std::int32_t c = 0; c < grid_.columns(); ++c) {
      area.x.push_back(static_cast<float>(std::round(grid_.column_x(c))));
      area.y.push_back(static_cast<float>(
          base - kHeight * (values[static_cast<std::size_t>(c)] - 1) / (most - 1)));
    }
    scene_.areas.push_back(std::move(area));
    text(grid_.x() - 6, y_ + kHeight / 2 + 4, rows_.ranks() > 1 ? "busiest rank" : "busiest expert",
         TextSize::Small, colors_.faint_text, Anchor::End);
    text(grid_.x() + grid_.width() + 6, y_ + 9, fixed_text(most, 2) + " ×", TextSize::Small,
         colors_.faint_text);
    text(grid_.x() + grid_.width() + 6, base, "1 ×", TextSize::Small, colors_.faint_text);
    y_ = base;
  }

  // The scale from a quarter to four times the mean, and what has no rows: beside it, or below
  // where there is no room.
  void legend() {
    constexpr double kHeight = 12;
    constexpr std::array<std::string_view, 5> kMarks{"1/4", "1/2", "mean", "2 ×", "4 ×"};
    constexpr std::string_view kNone = "no tokens";
    const double x = grid_.x(), y = y_ + 12, scale = std::min(220.0, grid_.width());
    Strip strip{.x = x, .y = y, .width = scale, .height = kHeight};
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(scale); ++i) {
      const double share = 2 * i / (scale - 1) - 1;
      strip.colors.push_back(packed(color_of_share(std::exp2(kDoublings * share), theme_)));
    }
    scene_.strips.push_back(std::move(strip));
    for (std::size_t i = 0; i < kMarks.size(); ++i) {
      text(x + scale * static_cast<double>(i) / (kMarks.size() - 1), y + kHeight + 12,
           std::string(kMarks[i]), TextSize::Small, colors_.faint_text, Anchor::Middle);
    }
    const double room = grid_.width() + kExpertsRight;
    const bool beside = scale + 48 + text_width(kNone, TextSize::Small) <= room;
    const double none_x = beside ? x + scale + 24 : x, none_y = beside ? y : y + kHeight + 22;
    scene_.rects.push_back(
        {.x = none_x, .y = none_y, .width = 18, .height = kHeight, .fill = colors_.text});
    text(none_x + 24, none_y + 10, std::string(kNone), TextSize::Small, colors_.text);
    y_ = none_y + (beside ? kHeight : 0) + 32 - kLine;
    const std::int32_t each = rows_.experts() / grid_.parts();
    std::string line = "A row is " + (each == 1 ? "an expert" : std::to_string(each) + " experts");
    if (rows_.ranks() > 1) {
      line += ". All " + std::to_string(rows_.ranks()) + " ranks wait for the busiest";
    }
    for (std::string& part : wrapped(line + '.', TextSize::Small, room)) {
      text(x, y_ += kLine, std::move(part), TextSize::Small, colors_.faint_text);
    }
    y_ += 8;
  }

  const ExpertRows& rows_;
  const ExpertGrid& grid_;
  Theme theme_;
  const Palette& colors_;
  Scene& scene_;
  double y_ = 0;
};

}  // namespace

Color color_of_share(double over_mean, Theme theme) {
  const Color even = theme == Theme::Light ? Color{244, 243, 238} : Color{62, 62, 66};
  const double doublings = std::log2(std::max(over_mean, 1e-9)) / kDoublings;
  return mix(even, doublings < 0 ? kFewer : kMore, std::min(1.0, std::fabs(doublings)));
}

double draw_experts(const ExpertRows& rows, const ExpertGrid& grid, Theme theme, Scene& scene) {
  return Map(rows, grid, theme, scene).draw();
}

Scene expert_map(const Trace& trace, const ExpertMapOptions& options) {
  constexpr double kMargin = 16, kMostHeight = 1200, kTitleLine = 22, kNormalLine = 18;
  const ExpertRows rows(trace);
  const Palette& colors = palette(options.theme);
  Scene scene{.width = options.width, .background = colors.background};
  const auto lines = [&](double x, double y, double line, TextSize size, Color color,
                         std::string_view text) {
    for (std::string& part : wrapped(text, size, options.width - x - kMargin)) {
      scene.texts.push_back(
          {.x = x, .y = y, .size = size, .color = color, .text = std::move(part)});
      y += line;
    }
    return y;
  };
  scene.title = trace.title.empty() ? trace.schedule_name : trace.title;
  double y = lines(kMargin, kMargin + 15, kTitleLine, TextSize::Title, colors.text, scene.title);
  y = lines(kMargin, y - 2, kNormalLine, TextSize::Normal, colors.faint_text,
            "measured · tokens of every expert over the mean of its layer, steps " +
                std::to_string(rows.step_number(0)) + " to " +
                std::to_string(rows.step_number(rows.steps() - 1)));
  const ExpertGrid grid(rows, kMargin + kExpertsLeft, y + 9,
                        options.width - 2 * kMargin - kExpertsLeft - kExpertsRight, kMostHeight);
  y = draw_experts(rows, grid, options.theme, scene);
  y = lines(grid.x(), y + 12, kLine, TextSize::Small, colors.faint_text, trace.caption);
  scene.height = static_cast<std::int32_t>(std::ceil(y - kLine + kMargin));
  return scene;
}

}  // namespace rehearse::viz
