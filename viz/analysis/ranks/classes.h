// SPDX-License-Identifier: Apache-2.0
// Ranks that do the same: rows that stand for several (a prediction), and rows of one class (a
// measurement, which has a row for every rank).
#pragma once

#include <string>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

class RankClasses {
 public:
  explicit RankClasses(const Trace& trace);

  // Of a measurement: the first row of the class of a row, and the one whose ops take longest; the
  // row itself where no other does the same.
  std::int32_t first(std::int32_t row) const { return first_[static_cast<std::size_t>(row)]; }
  std::int32_t slowest(std::int32_t row) const { return slowest_[static_cast<std::size_t>(row)]; }
  // Ranks that do the same as the row, it among them.
  std::int32_t ranks(std::int32_t row) const { return ranks_[static_cast<std::size_t>(row)]; }
  // Rows of its class, it among them; 1 where every row is a class.
  std::int32_t rows(std::int32_t row) const { return rows_[static_cast<std::size_t>(row)]; }
  // Each of them has a row of its own, or shares one with some.
  bool have_rows() const { return !trace_->row_class.empty(); }
  bool any() const { return any_; }  // some row has others that do the same

  // What a row is called. `copy`: one of the ranks that it stands for; -1: all of them. Where the
  // ranks of a prediction follow one another their numbers are said, else which of how many.
  std::string name(std::int32_t row, std::int32_t copy) const;
  // Of the row that stands for its class: "rank 37, slowest of 128".
  std::string class_name(std::int32_t row) const;

 private:
  const Trace* trace_;
  std::vector<std::int32_t> first_, slowest_, ranks_, rows_;
  bool any_ = false, in_order_ = true;
};

}  // namespace rehearse::viz
