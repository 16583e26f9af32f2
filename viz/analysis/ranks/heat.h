// SPDX-License-Identifier: Apache-2.0
// Ranks times time: how much of each cell is what was asked for, exactly. A cell of several ranks
// knows its mean and its worst rank. No drawing (heat_map.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "viz/analysis/index.h"
#include "viz/analysis/ranks/classes.h"
#include "viz/analysis/ranks/excess_grid.h"

namespace rehearse::viz {

// What a heat map counts: idle time, between ops and inside them as far as the trace knows; idle
// time of one cause (1 + IdleCause); or what ops take beyond the median of the ranks that do the
// same, as spread evenly over the op.
using HeatOf = std::uint8_t;
inline constexpr HeatOf kHeatIdle = 0, kHeatExcess = 1 + kNumIdleCauses;
inline constexpr std::size_t kNumHeats = kHeatExcess + 1;
constexpr HeatOf heat_of(IdleCause cause) {
  return static_cast<HeatOf>(1 + static_cast<std::size_t>(cause));
}
// "idle", the causes' names, "excess".
std::string_view heat_name(HeatOf of);

// Ranks are numbered in the order of the trace's rows; a row that stands for several is as many.
struct HeatBand {
  std::int64_t first = 0, last = 0;          // ranks [first, last)
  std::int32_t first_row = 0, last_row = 0;  // the rows that hold them
  double time = 0;                           // over all columns and ranks [ns]
  double worst = 0;                          // of the rank with most [ns]
  std::int32_t worst_row = 0;

  double ranks() const { return static_cast<double>(last - first); }
};

struct RankRange {
  std::int64_t first = 0, last = -1;  // ranks [first, last); -1: to the last
};

struct HeatTable {
  std::vector<std::int64_t> edges;  // column c is [edges[c], edges[c+1]) [ns]
  std::vector<HeatBand> bands;
  // (bands, columns): over all ranks of the band, and of the rank with most [ns]. Whole numbers but
  // for what is spread over an op.
  std::vector<double> time, worst;

  std::size_t columns() const { return edges.empty() ? 0 : edges.size() - 1; }
  double width(std::size_t c) const { return static_cast<double>(edges[c + 1] - edges[c]); }
  // Shares of a cell's time: of all its ranks, of its worst one.
  double mean(std::size_t band, std::size_t c) const {
    return time[band * columns() + c] / (bands[band].ranks() * width(c));
  }
  double most(std::size_t band, std::size_t c) const {
    return worst[band * columns() + c] / width(c);
  }
  // The same over all columns.
  double mean(std::size_t band) const { return bands[band].time / (bands[band].ranks() * span()); }
  double most(std::size_t band) const { return bands[band].worst / span(); }
  double span() const { return static_cast<double>(edges.back() - edges.front()); }
};

class HeatSource {
 public:
  // REQUIRES: `index` is by kind and outlives the source. Of traces of more than `most_ops` ops
  // excess is read from a grid of time where columns lie on one, in single precision.
  static constexpr std::int64_t kMostOps = 1 << 20;
  explicit HeatSource(const TraceIndex& index, std::int64_t most_ops = kMostOps);

  const Trace& trace() const { return index_.trace(); }
  std::int64_t ranks() const { return rank_begin_.back(); }
  // Idle time always; a cause that occurs; excess where several ranks do the same.
  bool has(HeatOf of) const;
  // Ranks in at most `bands` bands that differ by at most one rank. REQUIRES: has(of); edges
  // ascend, at least two.
  HeatTable table(HeatOf of, std::span<const std::int64_t> edges, std::int32_t bands,
                  RankRange ranks = {}) const;
  // "rank 7", "ranks 128 to 255"; where numbers are not known, the rows' names.
  std::string ranks_text(std::int64_t first, std::int64_t last) const;
  std::int32_t row_of(std::int64_t rank) const;
  // Those of rows [first_row, last_row), -1: to the last.
  RankRange ranks_of(std::int32_t first_row, std::int32_t last_row) const;

 private:
  template <class Sums>
  void add_row(HeatOf of, std::int32_t row, Sums& sums) const;
  const std::vector<float>& excess() const;

  const TraceIndex& index_;
  RankClasses classes_;
  std::vector<std::int64_t> rank_begin_;  // ranks before each row, and all
  std::array<bool, kNumHeats> has_{};
  bool explained_ = true;  // every gap has its cause
  std::int64_t most_ops_ = kMostOps;
  mutable std::vector<float> excess_;  // per op, over its duration; when first asked for
  mutable std::unique_ptr<ExcessGrid> grid_;
};

}  // namespace rehearse::viz
