// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/planner_shift.h"

#include <algorithm>
#include <numeric>

namespace rehearse {
namespace {

constexpr std::int32_t kPatience = 2;  // rounds without gain that a gain may still follow

// Ops on a time line: indices into the schedule that was given; rows change, starts move.
class TimeLine {
 public:
  TimeLine(const Schedule& schedule, const PlanTask& task, const ComputeTiming& timing)
      : task_(task), ops_(schedule.ops), stages_(task.placement.stages()), m_(task.microbatches) {
    const auto keys = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(m_);
    forward_.assign(keys, -1);
    backward_ = weight_ = forward_;
    row_of_.resize(ops_.size());
    for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
      std::vector<std::int32_t> ids(schedule.program(row).size());
      std::iota(ids.begin(), ids.end(), schedule.row_begin[row.index()]);
      for (const std::int32_t id : ids) row_of_[index(id)] = row.index();
      rows_.push_back(std::move(ids));
    }
    place_.resize(ops_.size());
    alive_.resize(ops_.size());
    for (const std::vector<std::int32_t>& row : rows_) {
      if (!row.empty()) renumber(row, 0, row.size() - 1);
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      start_.push_back(timing.start[i].value);
      length_.push_back(timing.end[i].value - timing.start[i].value);
      const Op& op = ops_[i];
      auto& column = op.kind == OpKind::Forward          ? forward_
                     : op.kind == OpKind::WeightGradient ? weight_
                                                         : backward_;
      column[key(op)] = static_cast<std::int32_t>(i);
    }
  }

  // Every op, the earliest first, to the earliest gap that takes it.
  void shift_left() {
    for (const std::int32_t id : sorted([&](std::int32_t i) { return start_[index(i)]; })) {
      const std::int64_t earliest = earliest_start(id);
      if (earliest >= start_[index(id)]) continue;
      std::vector<std::int32_t>& row = rows_[row_of_[index(id)]];
      const std::size_t here = place_[index(id)];
      const std::int64_t change = change_of(id);
      std::size_t best = here;
      std::int64_t best_start = start_[index(id)], most = alive_after(id) - change;
      std::int64_t alive = most;  // behind the op that `id` would stand before, without `id`
      for (std::size_t j = here;; --j) {
        // `id` moves before row[j]: what is alive from there to its old place changes with it.
        if (j < here) most = std::max(most, alive);
        const std::int64_t before = j < here ? alive - change_of(row[j]) : alive;
        if (change > 0 && std::max(most, before) + change > task_.limit_halves) break;
        const std::int64_t gap = j == 0 ? 0 : end_of(row[j - 1]);
        const std::int64_t at = std::max(earliest, gap);
        const bool fits = j == here || at + length_[index(id)] <= start_[index(row[j])];
        if (fits && at < best_start) {
          best = j;
          best_start = at;
        }
        if (j == 0 || gap <= earliest) break;
        alive = before;
      }
      if (best_start == start_[index(id)]) continue;
      std::rotate(row.begin() + step(best), row.begin() + step(here), row.begin() + step(here) + 1);
      start_[index(id)] = best_start;
      renumber(row, best, here);
    }
  }

  // Every op, the latest first, to the latest gap before `end of all` that takes it.
  void shift_right() {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < ops_.size(); ++i) last = std::max(last, start_[i] + length_[i]);
    for (const std::int32_t id : sorted([&](std::int32_t i) { return -end_of(i); })) {
      const std::int64_t latest = latest_end(id, last);
      if (latest <= end_of(id)) continue;
      std::vector<std::int32_t>& row = rows_[row_of_[index(id)]];
      const std::size_t here = place_[index(id)];
      const std::int64_t change = change_of(id);
      std::size_t best = here;
      std::int64_t best_end = end_of(id), alive = alive_after(id), most = INT64_MIN;
      for (std::size_t j = here; j < row.size(); ++j) {
        // `id` moves behind row[j]: what it frees stays alive until then.
        if (j > here) {
          alive += change_of(row[j]);
          most = std::max(most, alive);
          if (change < 0 && most - change > task_.limit_halves) break;
        }
        const std::int64_t gap = j + 1 < row.size() ? start_[index(row[j + 1])] : last;
        const std::int64_t at = std::min(latest, gap);
        const bool fits = j == here || at - length_[index(id)] >= end_of(row[j]);
        if (fits && at > best_end) {
          best = j;
          best_end = at;
        }
        if (gap >= latest) break;
      }
      if (best_end == end_of(id)) continue;
      std::rotate(row.begin() + step(here), row.begin() + step(here) + 1,
                  row.begin() + step(best) + 1);
      start_[index(id)] = best_end - length_[index(id)];
      renumber(row, here, best);
    }
    const std::int64_t first = *std::ranges::min_element(start_);
    for (std::int64_t& start : start_) start -= first;
  }

  Schedule order() const {
    Schedule schedule;
    schedule.placement = task_.placement;
    schedule.microbatches = m_;
    for (const std::vector<std::int32_t>& row : rows_) {
      for (const std::int32_t id : row) schedule.ops.push_back(ops_[index(id)]);
      schedule.end_row();
    }
    return schedule;
  }

 private:
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  static std::ptrdiff_t step(std::size_t place) { return static_cast<std::ptrdiff_t>(place); }
  std::size_t key(const Op& op) const {
    return op.stage.index() * static_cast<std::size_t>(m_) + op.microbatch.index();
  }
  std::int64_t end_of(std::int32_t id) const { return start_[index(id)] + length_[index(id)]; }
  std::int64_t change_of(std::int32_t id) const {  // of what is alive, in halves
    switch (ops_[index(id)].kind) {
      case OpKind::Forward:
        return 2;
      case OpKind::Backward:
        return -2;
      case OpKind::InputGradient:
        return task_.held_until_weight ? 0 : -1;
      default:
        return task_.held_until_weight ? -2 : -1;
    }
  }
  std::int64_t alive_after(std::int32_t id) const { return alive_[index(id)]; }
  // Places, and what is alive behind them, of row[first ... last].
  void renumber(const std::vector<std::int32_t>& row, std::size_t first, std::size_t last) {
    std::int64_t alive = first == 0 ? 0 : alive_[index(row[first - 1])];
    for (std::size_t place = first; place <= last; ++place) {
      alive += change_of(row[place]);
      alive_[index(row[place])] = alive;
      place_[index(row[place])] = place;
    }
  }
  std::int64_t delay(std::int32_t from, std::int32_t to) const {
    const auto at = [&](std::int32_t s) { return task_.placement.down[index(s)]; };
    return at(from) == at(to) ? 0 : task_.times.transfer.value;
  }
  template <class Order>
  std::vector<std::int32_t> sorted(Order order) const {
    std::vector<std::int32_t> ids(ops_.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, {}, order);
    return ids;
  }

  std::int64_t earliest_start(std::int32_t id) const {
    const Op& op = ops_[index(id)];
    const std::size_t at = key(op), stage = static_cast<std::size_t>(m_);
    const std::int32_t s = op.stage.value;
    const bool first = op.microbatch.value == 0;
    std::int64_t time = 0;
    const auto after = [&](std::int32_t other, std::int64_t wait) {
      time = std::max(time, end_of(other) + wait);
    };
    if (op.kind == OpKind::Forward) {
      if (s > 0) after(forward_[at - stage], delay(s - 1, s));
      if (!first) after(forward_[at - 1], 0);
    } else if (op.kind == OpKind::WeightGradient) {
      after(backward_[at], 0);
      if (!first) after(weight_[at - 1], 0);
    } else {
      after(forward_[at], 0);
      if (s + 1 < stages_) after(backward_[at + stage], delay(s + 1, s));
      if (!first) after(backward_[at - 1], 0);
    }
    return time;
  }
  std::int64_t latest_end(std::int32_t id, std::int64_t last_end) const {
    const Op& op = ops_[index(id)];
    const std::size_t at = key(op), stage = static_cast<std::size_t>(m_);
    const std::int32_t s = op.stage.value;
    const bool last = op.microbatch.value + 1 == m_;
    std::int64_t time = last_end;
    const auto before = [&](std::int32_t other, std::int64_t wait) {
      time = std::min(time, start_[index(other)] - wait);
    };
    if (op.kind == OpKind::Forward) {
      if (s + 1 < stages_) before(forward_[at + stage], delay(s, s + 1));
      before(backward_[at], 0);
      if (!last) before(forward_[at + 1], 0);
    } else if (op.kind == OpKind::WeightGradient) {
      if (!last) before(weight_[at + 1], 0);
    } else {
      if (s > 0) before(backward_[at - stage], delay(s, s - 1));
      if (weight_[at] >= 0) before(weight_[at], 0);
      if (!last) before(backward_[at + 1], 0);
    }
    return time;
  }

  const PlanTask& task_;
  std::vector<Op> ops_;
  std::int32_t stages_, m_;
  std::vector<std::vector<std::int32_t>> rows_;
  std::vector<std::size_t> row_of_, place_;  // of each op: its row, and its place in it
  std::vector<std::int64_t> alive_;          // behind each op on its row, in halves
  std::vector<std::int64_t> start_, length_;
  std::vector<std::int32_t> forward_, backward_, weight_;  // op by (stage, micro-batch)
};

}  // namespace

Schedule shift_ops(const Schedule& schedule, const PlanTask& task, Objective objective,
                   std::int32_t rounds) {
  Schedule best = schedule, current = schedule;
  PlanValue best_value = value_of(schedule, task, objective);
  for (std::int32_t round = 0, idle = 0; round < rounds && idle <= kPatience; ++round, ++idle) {
    const Result<ComputeTiming> timing = time_compute(current, task.times);
    if (!timing) break;
    TimeLine line(current, task, timing.value());
    line.shift_left();
    line.shift_right();
    line.shift_left();
    Schedule next = line.order();
    if (next.ops == current.ops) break;
    const PlanValue value = value_of(next, task, objective);
    current = std::move(next);
    if (value < best_value) {
      best_value = value;
      best = current;
      idle = 0;
    }
  }
  return best;
}

}  // namespace rehearse
