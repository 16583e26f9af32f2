// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/ranks/classes.h"

#include <algorithm>
#include <numeric>

#include "viz/analysis/ranks/stragglers.h"

namespace rehearse::viz {

RankClasses::RankClasses(const Trace& trace) : trace_(&trace) {
  const std::size_t rows = trace.rows.size();
  first_.resize(rows);
  std::iota(first_.begin(), first_.end(), 0);
  slowest_ = first_;
  // Ranks below the first one of the next row that all lie in this row: then they are a row's, one
  // after another (every class begins at its lowest rank).
  std::int64_t next = 0;
  for (const TraceRow& row : trace.rows) {
    ranks_.push_back(row.multiplicity);
    any_ = any_ || row.multiplicity > 1;
    in_order_ = in_order_ && row.first_rank && row.first_rank.value == next && row.name < 0;
    next += row.multiplicity;
  }
  rows_.assign(rows, 1);
  if (!have_rows()) return;
  std::vector<std::int32_t> first_of, count, rows_of;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto c = static_cast<std::size_t>(trace.row_class[row]);
    if (c >= first_of.size()) {
      first_of.resize(c + 1, -1);
      count.resize(c + 1);
      rows_of.resize(c + 1);
    }
    if (first_of[c] < 0) first_of[c] = static_cast<std::int32_t>(row);
    first_[row] = first_of[c];
    count[c] += trace.rows[row].multiplicity;
    ++rows_of[c];
  }
  for (std::size_t row = 0; row < rows; ++row) {
    ranks_[row] = count[static_cast<std::size_t>(trace.row_class[row])];
    rows_[row] = rows_of[static_cast<std::size_t>(trace.row_class[row])];
    any_ = any_ || ranks_[row] > 1;
  }
  std::vector<std::int32_t> slowest_of = first_of;
  for (const Straggler& one : stragglers(trace))
    slowest_of[static_cast<std::size_t>(one.row_class)] = one.slowest.value;
  for (std::size_t row = 0; row < rows; ++row)
    slowest_[row] = slowest_of[static_cast<std::size_t>(trace.row_class[row])];
}

std::string RankClasses::name(std::int32_t row, std::int32_t copy) const {
  if (copy < 0) return row_name(*trace_, {row});
  const TraceRow& of = trace_->rows[static_cast<std::size_t>(row)];
  if (in_order_) return "rank " + std::to_string(of.first_rank.value + copy);
  const std::string whole = row_name(*trace_, {row});
  return whole.substr(0, whole.find(" (x")) + " (" + std::to_string(copy + 1) + " of " +
         std::to_string(of.multiplicity) + ")";
}

std::string RankClasses::class_name(std::int32_t row) const {
  return row_name(*trace_, {slowest(row)}) + ", slowest of " + std::to_string(ranks(row));
}

}  // namespace rehearse::viz
