// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/experts/expert_grid.h"

#include <algorithm>
#include <cmath>

namespace rehearse::viz {
namespace {

constexpr double kLowest = 3, kHighest = 16;  // of a row [px]

}  // namespace

ExpertGrid::ExpertGrid(const ExpertRows& rows, double x, double y, double width, double most_height)
    : layers_(rows.layers()), steps_(rows.steps()), x_(x), y_(y), width_(width) {
  gap_ = layers_ <= 16 ? 8 : 3;
  const double room = most_height / layers_ - gap_;
  // The finest blocks that are high enough, and that no rank's end cuts; else the ranks.
  parts_ = rows.ranks();
  for (std::int32_t parts = rows.experts(); parts > rows.ranks(); --parts) {
    if (rows.experts() % parts != 0 || parts % rows.ranks() != 0) continue;
    if (room / parts < kLowest) continue;
    parts_ = parts;
    break;
  }
  row_ = std::clamp(std::floor(room / parts_), kLowest, kHighest);
  columns_ = std::min(steps_, std::max(1, static_cast<std::int32_t>(width / 2)));
}

StepRange ExpertGrid::column(std::int32_t column) const {
  const auto from = [&](std::int64_t c) {
    return static_cast<std::int32_t>(c * steps_ / columns_);
  };
  return {from(column), from(column + 1)};
}

std::optional<ExpertCell> ExpertGrid::at(double x, double y) const {
  const auto column = static_cast<std::int32_t>(std::floor((x - x_) / width_ * columns_));
  const auto layer = static_cast<std::int32_t>(std::floor((y - y_) / layer_height()));
  if (column < 0 || column >= columns_ || layer < 0 || layer >= layers_) return std::nullopt;
  const auto part = static_cast<std::int32_t>(std::floor((y - layer_y(layer)) / row_));
  if (part >= parts_) return std::nullopt;
  return ExpertCell{this->column(column), layer, part};
}

}  // namespace rehearse::viz
