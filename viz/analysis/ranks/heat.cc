// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/heat.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "viz/analysis/ranks/median.h"

namespace rehearse::viz {
namespace {

// More spans per column than this are read as differences of prefix sums.
constexpr std::int64_t kHeatSpansPerColumn = 8;

// Of one rank after the other, what falls into each column. A rank that fills columns wholly is
// counted at the two ends of the run: the work is that of its spans, not of its columns.
class ColumnSums {
 public:
  explicit ColumnSums(std::span<const std::int64_t> edges)
      : edges_(edges),
        count_(edges.size() - 1),
        per_ns_(static_cast<double>(count_) / static_cast<double>(edges.back() - edges.front())),
        time_(count_),
        worst_(count_),
        whole_(count_ + 1) {}

  std::span<const std::int64_t> edges() const { return edges_; }
  std::int64_t begin() const { return edges_.front(); }
  std::int64_t end() const { return edges_.back(); }

  void begin_rank(double ranks) {
    ranks_ = ranks;
    total_ = 0;
    at_ = none();
    last_ = 0;
  }
  // Spans of a rank come in order of time. `density`: how much of the span counts.
  void add(std::int64_t from, std::int64_t to, double density = 1) {
    from = std::max(from, begin());
    to = std::min(to, end());
    if (from >= to) return;
    total_ += density * static_cast<double>(to - from);
    const std::size_t first = column(from);
    if (to <= edges_[first + 1]) {
      cell(first, density * static_cast<double>(to - from));
      return;
    }
    cell(first, density * static_cast<double>(edges_[first + 1] - from));
    const std::size_t last = column(to - 1);
    if (density == 1) {
      whole_[first + 1] += ranks_;
      whole_[last] -= ranks_;
    } else {
      for (std::size_t c = first + 1; c < last; ++c)
        cell(c, density * static_cast<double>(edges_[c + 1] - edges_[c]));
    }
    cell(last, density * static_cast<double>(to - edges_[last]));
  }
  void add_column(std::size_t c, double time) {
    total_ += time;
    cell(c, time);
  }
  double end_rank() {
    flush();
    return total_;
  }

  // What all ranks since the last call left; begins anew.
  void take(double* time, double* worst) {
    double filling = 0;
    for (std::size_t c = 0; c < count_; ++c) {
      filling += whole_[c];
      const auto width = static_cast<double>(edges_[c + 1] - edges_[c]);
      time[c] = time_[c] + filling * width;
      worst[c] = filling > 0 ? width : worst_[c];
    }
    std::ranges::fill(time_, 0);
    std::ranges::fill(worst_, 0);
    std::ranges::fill(whole_, 0);
  }

 private:
  static constexpr std::size_t none() { return std::numeric_limits<std::size_t>::max(); }
  std::size_t column(std::int64_t time) {
    if (time < edges_[last_ + 1]) return last_;
    std::size_t c = std::min(
        count_ - 1, static_cast<std::size_t>(static_cast<double>(time - begin()) * per_ns_));
    while (edges_[c] > time) --c;  // columns at the ends may be narrower
    while (edges_[c + 1] <= time) ++c;
    return last_ = c;
  }
  void cell(std::size_t c, double time) {
    if (c != at_) {
      flush();
      at_ = c;
    }
    sum_ += time;
  }
  void flush() {
    if (at_ != none()) {
      time_[at_] += ranks_ * sum_;
      worst_[at_] = std::max(worst_[at_], sum_);
    }
    sum_ = 0;
  }

  std::span<const std::int64_t> edges_;
  std::size_t count_;
  double per_ns_;
  std::vector<double> time_, worst_, whole_;
  double ranks_ = 1, total_ = 0, sum_ = 0;
  std::size_t at_ = none(), last_ = 0;  // the cell that sum_ is of; where the last span ended
};

// The inner columns of a table, read from a grid; its two outer ones are cut by the view and summed
// up op by op.
class GridColumns {
 public:
  GridColumns(const ExcessGrid& grid, std::span<const std::int64_t> edges, std::int64_t origin)
      : grid_(grid),
        begin_(edges.first(2)),
        end_(edges.last(2)),
        sum_(edges.size() - 3),
        most_(sum_.size()) {
    const std::int64_t width = edges[2] - edges[1];
    shift_ = std::countr_zero(static_cast<std::uint64_t>(width));
    first_ = (edges[1] - origin) / width;
  }
  // Inner edges are the grid's, as far as it goes.
  static bool are_on_grid(std::span<const std::int64_t> edges, std::int64_t origin) {
    if (edges.size() < 4) return false;
    const std::int64_t width = edges[2] - edges[1];
    return std::has_single_bit(static_cast<std::uint64_t>(width)) &&
           (edges[1] - origin) % width == 0 &&
           edges[edges.size() - 2] - edges[1] ==
               (static_cast<std::int64_t>(edges.size()) - 3) * width;
  }
  std::int32_t shift() const { return shift_; }

  // Adds a row; gives its time over all columns. `add_outer` adds its ops to an outer column.
  template <class AddOuter>
  double add(std::int32_t row, double ranks, const AddOuter& add_outer) {
    const std::span<const float> all = grid_.row(row, shift_);
    const std::int64_t from = std::clamp<std::int64_t>(first_, 0, std::ssize(all)),
                       to = std::clamp<std::int64_t>(first_ + std::ssize(sum_), from,
                                                     std::ssize(all));
    double total = 0;
    if (from < to) {
      const auto at = static_cast<std::size_t>(from - first_);
      total = static_cast<double>(add_columns(
          all.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)),
          static_cast<float>(ranks), sum_.data() + at, most_.data() + at));
    }
    for (ColumnSums* outer : {&begin_, &end_}) {
      outer->begin_rank(ranks);
      add_outer(*outer);
      total += outer->end_rank();
    }
    return total;
  }
  // What all rows since the last call left; begins anew.
  void take(double* time, double* worst) {
    begin_.take(time, worst);
    std::ranges::copy(sum_, time + 1);
    std::ranges::copy(most_, worst + 1);
    end_.take(time + 1 + sum_.size(), worst + 1 + sum_.size());
    std::ranges::fill(sum_, 0.0f);
    std::ranges::fill(most_, 0.0f);
  }

 private:
  const ExcessGrid& grid_;
  std::int32_t shift_ = 0;
  std::int64_t first_ = 0;  // column of the grid
  ColumnSums begin_, end_;
  std::vector<float> sum_, most_;
};

bool takes_time_of_its_own(const Trace& trace, OpId op) {
  const OpClass of = traits(trace.class_of(op).kind).op_class;
  return of == OpClass::Compute || of == OpClass::Local;
}

// Per op that computes, its duration over the median of those that do the same in ranks that
// perform the same (of an even number the lower one), as a share of the duration; else 0.
std::vector<float> excess_of(const Trace& trace) {
  std::vector<float> excess(trace.start_ns.size());
  std::vector<std::vector<std::size_t>> rows;  // of each class
  for (std::size_t row = 0; row < trace.row_class.size(); ++row) {
    const auto c = static_cast<std::size_t>(trace.row_class[row]);
    rows.resize(std::max(rows.size(), c + 1));
    rows[c].push_back(row);
  }
  std::vector<TimeOfRanks> times;
  for (const std::vector<std::size_t>& alike : rows) {
    if (alike.size() < 2) continue;
    const std::int64_t ops = trace.row_begin[alike[0] + 1] - trace.row_begin[alike[0]];
    for (std::int64_t k = 0; k < ops; ++k) {
      const auto op_of = [&](std::size_t row) {
        return static_cast<std::size_t>(trace.row_begin[row] + k);
      };
      if (!takes_time_of_its_own(trace, {static_cast<std::int32_t>(op_of(alike[0]))})) continue;
      times.clear();
      for (const std::size_t row : alike)
        times.push_back(
            {trace.end_ns[op_of(row)] - trace.start_ns[op_of(row)], trace.rows[row].multiplicity});
      const auto median = static_cast<double>(median_of(times));
      for (const std::size_t row : alike) {
        const std::size_t op = op_of(row);
        const auto time = static_cast<double>(trace.end_ns[op] - trace.start_ns[op]);
        if (time > 0) excess[op] = static_cast<float>((time - median) / time);
      }
    }
  }
  return excess;
}

}  // namespace

std::string_view heat_name(HeatOf of) {
  if (of == kHeatIdle) return "idle";
  return of == kHeatExcess ? std::string_view{"excess"} : kIdleCauseNames[of - 1];
}

HeatSource::HeatSource(const TraceIndex& index, std::int64_t most_ops)
    : index_(index), classes_(index.trace()), rank_begin_{0}, most_ops_(most_ops) {
  const Trace& trace = index.trace();
  std::array<std::int64_t, kNumKinds> time;
  const auto sum = [&](const LaneIndex& lane) {
    lane.busy(trace.begin.value, trace.end.value, time.data());
    std::int64_t all = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(lane.num_kinds); ++k) all += time[k];
    return all;
  };
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    rank_begin_.push_back(rank_begin_.back() +
                          trace.rows[static_cast<std::size_t>(row)].multiplicity);
    explained_ = explained_ && trace.slots > 0 &&
                 sum(index.lane(row * trace.slots)) + sum(index.idle(row)) == trace.step().value;
  }
  has_[kHeatIdle] = true;
  for (const IdleSpan& span : trace.idle) has_[heat_of(span.cause)] = true;
  std::vector<std::int32_t> ranks;
  for (const std::int32_t c : trace.row_class) {
    ranks.resize(std::max<std::size_t>(ranks.size(), static_cast<std::size_t>(c) + 1));
    if (++ranks[static_cast<std::size_t>(c)] == 2) has_[kHeatExcess] = true;
  }
}

bool HeatSource::has(HeatOf of) const {
  return of < kNumHeats && has_[of];
}

const std::vector<float>& HeatSource::excess() const {
  if (excess_.empty()) excess_ = excess_of(trace());
  return excess_;
}

template <class Sums>
void HeatSource::add_row(HeatOf of, std::int32_t row, Sums& sums) const {
  const Trace& trace = this->trace();
  if (trace.slots == 0) return;
  const LaneIndex& lane = index_.lane(row * trace.slots);
  const LaneIndex& idle = index_.idle(row);
  const auto each_op = [&](auto visit) {
    for (std::int32_t i = lane.first_item_after(sums.begin());
         i < lane.items.count && lane.items.start(i) < sums.end(); ++i) {
      visit(static_cast<std::size_t>(lane.items.op(i)), lane.items.start(i), lane.items.end(i));
    }
  };
  if (of == kHeatExcess) {
    const std::vector<float>& excess = this->excess();
    each_op([&](std::size_t op, std::int64_t from, std::int64_t to) {
      if (excess[op] != 0) sums.add(from, to, static_cast<double>(excess[op]));
    });
    return;
  }
  const bool whole = of == kHeatIdle;
  if (whole && (!explained_ || !trace.communicating_ns.empty())) {
    // Gaps are what lies between ops; what a body waits is taken as spread evenly over its op.
    const std::int32_t first = lane.first_item_after(sums.begin());
    std::int64_t free = first > 0 ? lane.items.end(first - 1) : trace.begin.value;
    each_op([&](std::size_t op, std::int64_t from, std::int64_t to) {
      sums.add(free, from);
      free = to;
      if (trace.communicating_ns.empty() || from == to) return;
      const auto waits = static_cast<double>(trace.communicating_ns[op]);
      if (waits > 0) sums.add(from, to, waits / static_cast<double>(to - from));
    });
    const std::int32_t next = lane.first_item_after(sums.end() - 1);
    sums.add(free, next < lane.items.count ? lane.items.start(next) : trace.end.value);
    return;
  }
  const std::int32_t first = idle.first_item_after(sums.begin()),
                     last = idle.first_item_after(sums.end() - 1);
  const std::span<const std::int64_t> edges = sums.edges();
  if (last - first > kHeatSpansPerColumn * static_cast<std::int64_t>(edges.size())) {
    std::array<std::int64_t, kNumKinds> time;
    for (std::size_t c = 0; c + 1 < edges.size(); ++c) {
      idle.busy(edges[c], edges[c + 1], time.data());
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(idle.num_kinds); ++k)
        sum += whole || heat_of(cause_of(idle.kinds[k])) == of ? time[k] : 0;
      if (sum > 0) sums.add_column(c, static_cast<double>(sum));
    }
    return;
  }
  for (std::int32_t i = first; i < idle.items.count && idle.items.start(i) < sums.end(); ++i) {
    const IdleSpan& span = idle.items.idle[i];
    if (whole || heat_of(span.cause) == of) sums.add(span.begin, span.end);
  }
}

std::int32_t HeatSource::row_of(std::int64_t rank) const {
  return static_cast<std::int32_t>(std::ranges::upper_bound(rank_begin_, rank) -
                                   rank_begin_.begin() - 1);
}

RankRange HeatSource::ranks_of(std::int32_t first_row, std::int32_t last_row) const {
  if (last_row < 0) last_row = trace().num_rows();
  return {rank_begin_[static_cast<std::size_t>(first_row)],
          rank_begin_[static_cast<std::size_t>(last_row)]};
}

HeatTable HeatSource::table(HeatOf of, std::span<const std::int64_t> edges, std::int32_t bands,
                            RankRange shown) const {
  HeatTable table{.edges = {edges.begin(), edges.end()}};
  const std::int64_t first = shown.first, count = (shown.last < 0 ? ranks() : shown.last) - first;
  bands = static_cast<std::int32_t>(std::min<std::int64_t>(std::max(bands, 1), count));
  const std::size_t columns = table.columns();
  table.time.resize(static_cast<std::size_t>(bands) * columns);
  table.worst.resize(table.time.size());
  ColumnSums sums(table.edges);
  std::optional<GridColumns> grid;
  const std::int64_t origin = trace().begin.value;
  if (of == kHeatExcess && trace().num_ops() > most_ops_ &&
      GridColumns::are_on_grid(table.edges, origin)) {
    if (grid_ == nullptr) grid_ = std::make_unique<ExcessGrid>(index_, excess());
    grid.emplace(*grid_, table.edges, origin);
    if (grid->shift() < grid_->least_shift()) grid.reset();
  }
  for (std::int32_t b = 0; b < bands; ++b) {
    HeatBand band{.first = first + count * b / bands, .last = first + count * (b + 1) / bands};
    band.first_row = row_of(band.first);
    band.last_row = row_of(band.last - 1) + 1;
    double* time = table.time.data() + static_cast<std::size_t>(b) * columns;
    double* worst = table.worst.data() + static_cast<std::size_t>(b) * columns;
    const HeatBand* above = b > 0 ? &table.bands.back() : nullptr;
    if (above != nullptr && band.last_row == band.first_row + 1 &&
        above->first_row == band.first_row && above->last_row == band.last_row) {
      // Ranks of one row: each has what those above have.
      const auto as_many = [&](double all) { return all / above->ranks() * band.ranks(); };
      for (std::size_t c = 0; c < columns; ++c) {
        time[c] = as_many((time - columns)[c]);
        worst[c] = (worst - columns)[c];
      }
      band.time = as_many(above->time);
      band.worst = above->worst;
      band.worst_row = above->worst_row;
      table.bands.push_back(band);
      continue;
    }
    band.worst = -std::numeric_limits<double>::infinity();
    for (std::int32_t row = band.first_row; row < band.last_row; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const auto ranks = static_cast<double>(std::min(band.last, rank_begin_[at + 1]) -
                                             std::max(band.first, rank_begin_[at]));
      double total = 0;
      if (grid) {
        total = grid->add(row, ranks, [&](ColumnSums& outer) { add_row(of, row, outer); });
      } else {
        sums.begin_rank(ranks);
        add_row(of, row, sums);
        total = sums.end_rank();
      }
      band.time += ranks * total;
      if (total > band.worst) {
        band.worst = total;
        band.worst_row = row;
      }
    }
    if (grid) {
      grid->take(time, worst);
    } else {
      sums.take(time, worst);
    }
    table.bands.push_back(band);
  }
  return table;
}

std::string HeatSource::ranks_text(std::int64_t first, std::int64_t last) const {
  const std::int32_t from = row_of(first), to = row_of(last - 1);
  const auto name = [&](std::int32_t row, std::int64_t rank) {
    const std::int64_t begin = rank_begin_[static_cast<std::size_t>(row)];
    const bool one = trace().rows[static_cast<std::size_t>(row)].multiplicity == 1;
    return classes_.name(row, one ? -1 : static_cast<std::int32_t>(rank - begin));
  };
  const std::string low = name(from, first);
  if (last - first == 1) return low;
  constexpr std::string_view kRank = "rank ";
  const std::string high = name(to, last - 1);
  const auto numbered = [&](const std::string& text) {
    return text.starts_with(kRank) &&
           text.find_first_not_of("0123456789", kRank.size()) == std::string::npos;
  };
  if (numbered(low) && numbered(high)) return "ranks " + low.substr(5) + " to " + high.substr(5);
  return from == to ? row_name(trace(), {from})
                    : row_name(trace(), {from}) + " to " + row_name(trace(), {to});
}

}  // namespace rehearse::viz
