// SPDX-License-Identifier: Apache-2.0
// Where everything of a heat map of experts is: steps across, experts down, layer by layer. Drawing
// and the mouse ask the same.
#pragma once

#include <optional>

#include "viz/analysis/expert_rows.h"

namespace rehearse::viz {

struct ExpertCell {
  StepRange steps;
  std::int32_t layer = 0, part = 0;
};

// Rows are as high as `most_height` allows, between 3 and 16 px; where experts would be lower, a
// row is a block of several: its cell is their mean. Columns are steps, or several where there are
// more steps than every second pixel.
class ExpertGrid {
 public:
  // REQUIRES: !rows.empty()
  ExpertGrid(const ExpertRows& rows, double x, double y, double width, double most_height);

  std::int32_t parts() const { return parts_; }      // rows of a layer
  std::int32_t columns() const { return columns_; }  // at most a column for each step
  double x() const { return x_; }
  double width() const { return width_; }
  double row_height() const { return row_; }
  double height() const { return layers_ * layer_height() - gap_; }
  double layer_height() const { return parts_ * row_ + gap_; }
  double layer_y(std::int32_t layer) const { return y_ + layer * layer_height(); }
  StepRange column(std::int32_t column) const;
  double column_x(std::int32_t column) const { return x_ + width_ * column / columns_; }

  std::optional<ExpertCell> at(double x, double y) const;  // none: between layers, or outside

 private:
  std::int32_t layers_ = 0, steps_ = 0, parts_ = 0, columns_ = 0;
  double x_ = 0, y_ = 0, width_ = 0, row_ = 0, gap_ = 0;
};

}  // namespace rehearse::viz
