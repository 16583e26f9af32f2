// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/two/lag.h"

#include <algorithm>

namespace rehearse::viz {

LagCurve::LagCurve(const Trace& a, const Trace& b, std::span<const OpId> same, RankClass row) {
  const auto last = static_cast<std::int32_t>(b.row_begin[row.index() + 1]);
  for (OpId op{static_cast<std::int32_t>(b.row_begin[row.index()])}; op.value < last; ++op.value) {
    if (b.class_of(op).slot != 0 || !same[op.index()]) continue;
    time_.push_back(b.end_ns[op.index()]);
    lag_.push_back((b.end_ns[op.index()] - b.begin.value) -
                   (a.end_ns[same[op.index()].index()] - a.begin.value));
  }
  const auto count = static_cast<std::int64_t>(lag_.size());
  most_ = GreatestOf(count, [&](std::int64_t i) { return lag_[static_cast<std::size_t>(i)]; });
  least_ = GreatestOf(count, [&](std::int64_t i) { return -lag_[static_cast<std::size_t>(i)]; });
  if (count > 0) {
    const auto [least, most] = std::ranges::minmax(lag_);
    whole_ = {least, most, true};
  }
}

std::int64_t LagCurve::before(std::int64_t time) const {
  return std::ranges::upper_bound(time_, time) - time_.begin();
}

LagCurve::Range LagCurve::over(std::int64_t begin, std::int64_t end) const {
  const std::int64_t last = std::ranges::lower_bound(time_, end) - time_.begin();
  const std::int64_t first = std::max<std::int64_t>(0, before(begin) - 1);
  if (first >= last) return {};
  const auto value = [&](std::int64_t i) { return lag_[static_cast<std::size_t>(i)]; };
  return {.least = -least_.of(first, last, [&](std::int64_t i) { return -value(i); }).value,
          .most = most_.of(first, last, value).value,
          .known = true};
}

std::int64_t LagCurve::at(std::int64_t time) const {
  const std::int64_t count = before(time);
  return count == 0 ? 0 : lag_[static_cast<std::size_t>(count - 1)];
}

std::int64_t origin_of_second(const Trace& a, const Trace& b, Align align, OpId same, OpId op) {
  switch (align) {
    case Align::Step:
      break;
    case Align::Op:
      if (same && op) return b.start_ns[op.index()] - (a.start_ns[same.index()] - a.begin.value);
      break;
    case Align::Wall:
      return a.begin.value;
  }
  return b.begin.value;
}

}  // namespace rehearse::viz
