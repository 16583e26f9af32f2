// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/repetition.h"

#include <algorithm>
#include <limits>

#include "schedules/ir/stage_index.h"

namespace rehearse::sim {
namespace {

// Periods that must be seen in the timeline: the state is looked at behind the first, sums are
// taken over one that lies far enough from either end that no gap's causes reach beyond.
constexpr std::int64_t kSeenPeriods = 5;
// And in the order, whose state is what started in the last of them.
constexpr std::int64_t kOrderedPeriods = 2;
// Lengths of a period that are tried: a circuit through k rows takes k rounds.
constexpr std::int32_t kMostTried = 64;

std::size_t slot(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

class Finder {
 public:
  Finder(const Schedule& schedule, std::span<const std::uint64_t> relative, const CostTable& costs,
         const Timeline& timeline, std::span<const std::int32_t> until)
      : s_(schedule),
        relative_(relative),
        costs_(costs),
        timeline_(timeline),
        rows_(slot(schedule.num_rows())),
        ends_(rows_),
        lengths_(rows_),
        first_(rows_) {
    order_until_ = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < rows_; ++r) {
      if (until[r] < schedule.row_begin[r + 1]) {
        order_until_ = std::min(order_until_, schedule.ops[slot(until[r])].key);
      }
    }
    for (std::size_t r = 0; r < rows_; ++r) ends_[r] = first_from(r, order_until_);
    for (const Cost& cost : costs.costs) longest_ = std::max(longest_, cost.time.value);
  }

  std::optional<Repetition> find(std::int32_t multiple) {
    const auto end = std::ranges::find_if(ends_, [&](const std::int32_t& e) {
      return last_compute(static_cast<std::size_t>(&e - ends_.data())) >= 0;
    });
    if (end == ends_.end()) return {};
    const auto row = static_cast<std::size_t>(end - ends_.begin());
    const std::int32_t last = last_compute(row);
    std::int32_t tried = 0;
    for (std::int32_t i = last - 1; i >= s_.row_begin[row] && tried < kMostTried; --i) {
      if (!alike(i, last)) continue;
      const std::int32_t microbatches = directions() * (number_of(last) - number_of(i));
      if (microbatches <= 0 || microbatches % multiple != 0) continue;
      ++tried;
      if (!repeats_in_order(s_.ops[slot(last)].key - s_.ops[slot(i)].key)) continue;
      if (auto found = repeats_in_time()) {
        found->microbatches = microbatches;
        return found;
      }
    }
    return {};
  }

 private:
  // First op of the row whose key is not less.
  std::int32_t first_from(std::size_t r, std::int64_t key) const {
    const auto begin = s_.ops.begin() + s_.row_begin[r], end = s_.ops.begin() + s_.row_begin[r + 1];
    const auto found = std::ranges::lower_bound(begin, end, key, {}, &Op::key);
    return static_cast<std::int32_t>(found - s_.ops.begin());
  }
  // The row's last compute op before its end; -1: none.
  std::int32_t last_compute(std::size_t r) const {
    for (std::int32_t i = ends_[r]; i-- > s_.row_begin[r];) {
      if (is_compute(s_.ops[slot(i)].kind)) return i;
    }
    return -1;
  }
  bool alike(std::int32_t a, std::int32_t b) const {
    return relative_[slot(a)] == relative_[slot(b)] &&
           costs_.of_op[slot(a)] == costs_.of_op[slot(b)];
  }
  std::int32_t directions() const { return s_.placement.up.empty() ? 1 : 2; }
  std::int32_t number_of(std::int32_t op) const {
    return work_of(s_, s_.ops[slot(op)]).front().microbatch.value;
  }

  // Every row does the same ops again `period` later, in the lowering's own simulation.
  bool repeats_in_order(std::int64_t period) {
    if (period <= 0) return false;
    std::int64_t since = 0;
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int32_t length = ends_[r] - first_from(r, order_until_ - period);
      std::int32_t i = ends_[r];
      while (length > 0 && i - length > s_.row_begin[r] && alike(i - 1, i - 1 - length) &&
             s_.ops[slot(i - 1)].key - s_.ops[slot(i - 1 - length)].key == period) {
        --i;
      }
      lengths_[r] = length;
      first_[r] = i;
      for (std::int32_t k = s_.row_begin[r]; k < i; ++k) {
        since = std::max(since, s_.ops[slot(k)].key + costs_.cost({k}).time.value);
      }
      if (order_until_ - since < kOrderedPeriods * period) return false;
    }
    return true;
  }

  // And in the engine's.
  std::optional<Repetition> repeats_in_time() const {
    std::int64_t until = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::int32_t i = ends_[r]; i < s_.row_begin[r + 1]; ++i) {
        until = std::min(until, start(i));
      }
    }
    std::int64_t period = -1, since = 0;
    Repetition found;
    for (std::size_t r = 0; r < rows_; ++r) {
      const std::int32_t length = lengths_[r];
      std::int32_t i = ends_[r],
                   open = ends_[r];  // open: the first that starts too late to be seen
      if (length == 0) return {};
      for (; i > first_[r]; --i) {
        const std::int32_t op = i - 1;
        if (start(op) >= until) {
          open = op;
          continue;
        }
        if (period < 0) period = start(op) - start(op - length);
        if (!same(op, op - length, period, until)) break;
      }
      for (std::int32_t k = s_.row_begin[r]; k < i; ++k) since = std::max(since, end(k));
      found.begin.push_back(open - 3 * length);
      found.length.push_back(length);
      if (period <= 0 || found.begin.back() < i || falls_behind(r, length, period)) return {};
    }
    if (period <= 0 || until - since < kSeenPeriods * period + longest_) return {};
    found.period = {period};
    found.until = {until};
    return found;
  }

  std::int64_t start(std::int32_t op) const { return timeline_.start[slot(op)].value; }
  std::int64_t end(std::int32_t op) const { return timeline_.end[slot(op)].value; }

  bool same(std::int32_t op, std::int32_t before, std::int64_t period, std::int64_t until) const {
    if (start(op) - start(before) != period) return false;
    if (end(op) >= until) return true;  // what it loses may be lost to what comes then
    const auto equal = [&](const auto& column) {
      return column.empty() || column[slot(op)] == column[slot(before)];
    };
    return end(op) - end(before) == period && equal(timeline_.contended) &&
           equal(timeline_.slowed) && equal(timeline_.limited_by);
  }

  // A host that takes longer than a period to issue one will be waited for one day.
  bool falls_behind(std::size_t r, std::int32_t length, std::int64_t period) const {
    std::int64_t host = 0;
    for (std::int32_t i = ends_[r] - length; i < ends_[r]; ++i) host += costs_.cost({i}).host.value;
    return host > period;
  }

  const Schedule& s_;
  const std::span<const std::uint64_t> relative_;
  const CostTable& costs_;
  const Timeline& timeline_;
  const std::size_t rows_;
  std::vector<std::int32_t> ends_;     // per row: the first op that may be another, by the order
  std::vector<std::int32_t> lengths_;  // per row: ops of a period
  std::vector<std::int32_t> first_;    // per row: from here on ops repeat in the order
  std::int64_t order_until_ = 0, longest_ = 0;
};

}  // namespace

std::optional<Repetition> find_repetition(const Schedule& schedule,
                                          std::span<const std::uint64_t> relative,
                                          const CostTable& costs, const Timeline& timeline,
                                          std::span<const std::int32_t> until,
                                          std::int32_t multiple) {
  return Finder(schedule, relative, costs, timeline, until).find(multiple);
}

}  // namespace rehearse::sim
