// SPDX-License-Identifier: Apache-2.0
// How far one trace is behind another, op by op, along a rank's compute lane.
#pragma once

#include <span>

#include "viz/analysis/curves.h"

namespace rehearse::viz {

// Lags are those of trace b behind trace a where their steps begin together [ns]: positive: b is
// later. Aligned in another way, all differ by one number.
class LagCurve {
 public:
  // `same`: per op of b, the op of a that does the same; none: it has none. Of a lane's ops without
  // one nothing is said. REQUIRES: the row is b's.
  LagCurve(const Trace& a, const Trace& b, std::span<const OpId> same, RankClass row);

  struct Range {
    std::int64_t least = 0, most = 0;
    bool known = false;
  };
  // What holds at some time of [begin, end), in b's own time. A lag holds from its op's end to that
  // of the next op.
  Range over(std::int64_t begin, std::int64_t end) const;
  // At a time; before the first op's end 0, as steps begin together.
  std::int64_t at(std::int64_t time) const;
  bool empty() const { return time_.empty(); }
  const Range& whole() const { return whole_; }

 private:
  std::int64_t before(std::int64_t time) const;  // samples up to a time

  std::vector<std::int64_t> time_, lag_;  // of each op's end
  GreatestOf most_{0, [](std::int64_t) { return std::int64_t{0}; }},
      least_{0, [](std::int64_t) { return std::int64_t{0}; }};
  Range whole_;
};

// What laying side by side begins together.
enum class Align : std::uint8_t {
  Step,  // the steps
  Op,    // an op and its counterpart
  Wall,  // both traces' clocks
};
inline constexpr std::array<std::string_view, 3> kAlignNames{"step", "op", "wall"};

// The time of trace b at which a's step begins. `op` is b's, `same` a's: of Align::Op alone.
std::int64_t origin_of_second(const Trace& a, const Trace& b, Align align, OpId same, OpId op);

}  // namespace rehearse::viz
