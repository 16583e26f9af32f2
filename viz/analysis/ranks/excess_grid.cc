// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/excess_grid.h"

#include <algorithm>
#include <cstring>

namespace rehearse::viz {

ExcessGrid::ExcessGrid(const TraceIndex& index, std::span<const float> excess) {
  constexpr std::int64_t kMostColumns = 4096;
  const Trace& trace = index.trace();
  const std::int64_t span = std::max<std::int64_t>(1, trace.step().value);
  while ((span >> least_shift_) >= kMostColumns) ++least_shift_;
  const auto rows = static_cast<std::size_t>(trace.num_rows());
  Level* level = &levels_.emplace_back();
  level->columns = static_cast<std::size_t>(span >> least_shift_) + 1;
  level->time.resize(rows * level->columns);
  const std::int64_t width = std::int64_t{1} << least_shift_;
  for (std::size_t row = 0; row < rows && trace.slots > 0; ++row) {
    float* out = level->time.data() + row * level->columns;
    const LaneItems& items = index.lane(static_cast<std::int32_t>(row) * trace.slots).items;
    for (std::int32_t i = 0; i < items.count; ++i) {
      const float share = excess[static_cast<std::size_t>(items.op(i))];
      if (share == 0) continue;
      std::int64_t from = items.start(i) - trace.begin.value;
      const std::int64_t to = items.end(i) - trace.begin.value;
      for (std::int64_t c = from >> least_shift_; from < to; ++c) {
        const std::int64_t end = std::min(to, (c + 1) * width);
        out[c] += share * static_cast<float>(end - from);
        from = end;
      }
    }
  }
  while (levels_.back().columns > 2) {
    const Level& fine = levels_.back();
    Level coarse{.columns = (fine.columns + 1) / 2};
    coarse.time.resize(rows * coarse.columns);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* from = fine.time.data() + row * fine.columns;
      float* to = coarse.time.data() + row * coarse.columns;
      for (std::size_t c = 0; c < fine.columns; ++c) to[c / 2] += from[c];
    }
    levels_.push_back(std::move(coarse));
  }
}

std::span<const float> ExcessGrid::row(std::int32_t row, std::int32_t shift) const {
  const auto at = std::min(static_cast<std::size_t>(shift - least_shift_), levels_.size() - 1);
  const Level& level = levels_[at];
  return std::span{level.time}.subspan(static_cast<std::size_t>(row) * level.columns,
                                       level.columns);
}

float add_columns(std::span<const float> row, float ranks, float* sum, float* most) {
  using Four = float __attribute__((vector_size(16)));
  const auto load = [](const float* from) {
    Four four;
    std::memcpy(&four, from, sizeof four);
    return four;
  };
  Four totals{};
  std::size_t c = 0;
  for (; c + 4 <= row.size(); c += 4) {
    const Four here = load(row.data() + c), before = load(most + c);
    const Four sums = load(sum + c) + here * ranks, greater = here > before ? here : before;
    std::memcpy(sum + c, &sums, sizeof sums);
    std::memcpy(most + c, &greater, sizeof greater);
    totals += here;
  }
  float total = totals[0] + totals[1] + totals[2] + totals[3];
  for (; c < row.size(); ++c) {
    sum[c] += row[c] * ranks;
    most[c] = std::max(most[c], row[c]);
    total += row[c];
  }
  return total;
}

}  // namespace rehearse::viz
