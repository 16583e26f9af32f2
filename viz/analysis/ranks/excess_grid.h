// SPDX-License-Identifier: Apache-2.0
// What ops take beyond the median of their like, by row and column of a grid of time: a map of the
// whole step reads columns, several at once, where walking its ops would take longer than a frame.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viz/analysis/index.h"

namespace rehearse::viz {

class ExcessGrid {
 public:
  // `excess`: per op, as a share of its duration. 8 B for each of 2,048 to 4,096 columns of a row.
  ExcessGrid(const TraceIndex& index, std::span<const float> excess);

  // Columns are 2^shift ns from the step's begin; there are those of every shift from this one on.
  std::int32_t least_shift() const { return least_shift_; }
  // Of a row the excess of each column [ns]; columns beyond the step are not there. REQUIRES: shift
  // >= least_shift().
  std::span<const float> row(std::int32_t row, std::int32_t shift) const;

 private:
  struct Level {
    std::size_t columns = 0;
    std::vector<float> time;  // (rows, columns) [ns]
  };
  std::int32_t least_shift_ = 0;
  std::vector<Level> levels_;  // by shift - least_shift_, the last has a column or two
};

// Adds a row to the columns of its band: `ranks` times to `sum`, the greater to `most`. Gives the
// sum over the columns. All three are as long.
float add_columns(std::span<const float> row, float ranks, float* sum, float* most);

}  // namespace rehearse::viz
