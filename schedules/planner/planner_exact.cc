// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/planner_exact.h"

#include <algorithm>
#include <array>

namespace rehearse {
namespace {

constexpr std::size_t kStages = 3, kMicrobatches = 4;

struct Counts {
  std::array<std::int32_t, kStages> forward{}, input{}, weight{};
  auto operator<=>(const Counts&) const = default;
};

struct State {
  Counts done;
  std::array<std::int64_t, kStages> free{};  // when the position is free
  // Ends of what the next (forward) or previous stage (input) has not taken over yet.
  std::array<std::array<std::int64_t, kMicrobatches>, kStages> forward{}, input{};
  std::int32_t parent = -1;  // in the layer before
  Op op{};                   // that led here
};

class Search {
 public:
  Search(const PlanTask& task, std::int64_t bound)
      : task_(task),
        p_(static_cast<std::size_t>(task.placement.positions)),
        m_(task.microbatches),
        bound_(bound) {}

  Schedule run() {
    layers_.push_back({State{}});
    const std::size_t ops = 3 * p_ * static_cast<std::size_t>(m_);
    for (std::size_t layer = 0; layer < ops; ++layer) {
      std::vector<State> next;
      for (std::size_t i = 0; i < layers_[layer].size(); ++i) {
        expand(layers_[layer][i], static_cast<std::int32_t>(i), next);
      }
      layers_.push_back(without_dominated(std::move(next)));
    }
    return trace_back();
  }

 private:
  static std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }
  const StageTimes& times(std::size_t s) const {
    return task_.times.of({static_cast<std::int32_t>(s)});
  }
  std::int64_t transfer() const { return task_.times.transfer.value; }

  void expand(const State& from, std::int32_t parent, std::vector<State>& next) const {
    const Counts& done = from.done;
    for (std::size_t s = 0; s < p_; ++s) {
      const std::int32_t f = done.forward[s], i = done.input[s], w = done.weight[s];
      const std::int64_t alive = 2 * f - (task_.held_until_weight ? 2 * w : i + w);
      if (f < m_ && (s == 0 || f < done.forward[s - 1]) && alive + 2 <= task_.limit_halves) {
        const auto b = index(f);
        const std::int64_t ready = s == 0 ? 0 : from.forward[s - 1][b] + transfer();
        State to = after(from, parent, s, OpKind::Forward, f, ready, times(s).forward.value);
        ++to.done.forward[s];
        to.forward[s][b] = to.free[s];
        if (s > 0) to.forward[s - 1][b] = 0;
        add(to, next);
      }
      if (i < f && (s + 1 == p_ || i < done.input[s + 1])) {
        const auto b = index(i);
        const std::int64_t ready = s + 1 == p_ ? 0 : from.input[s + 1][b] + transfer();
        State to =
            after(from, parent, s, OpKind::InputGradient, i, ready, times(s).input_gradient.value);
        ++to.done.input[s];
        to.input[s][b] = to.free[s];
        if (s + 1 < p_) to.input[s + 1][b] = 0;
        add(to, next);
      }
      if (w < i) {
        State to =
            after(from, parent, s, OpKind::WeightGradient, w, 0, times(s).weight_gradient.value);
        ++to.done.weight[s];
        add(to, next);
      }
    }
  }

  State after(const State& from, std::int32_t parent, std::size_t s, OpKind kind,
              std::int32_t microbatch, std::int64_t ready, std::int64_t duration) const {
    State to = from;
    to.parent = parent;
    to.op = compute_op(kind, {static_cast<std::int32_t>(s)}, {microbatch});
    to.free[s] = std::max(from.free[s], ready) + duration;
    return to;
  }

  void add(State& state, std::vector<State>& next) const {
    if (at_least(state) >= bound_) return;
    // What waits for a position that is busy until later might as well end later: fewer states.
    for (std::size_t s = 0; s < p_; ++s) {
      for (std::int64_t& end : state.forward[s]) {
        if (s + 1 < p_ && end > 0) end = std::max(end, state.free[s + 1] - transfer());
        if (s + 1 == p_) end = 0;  // nobody takes it over
      }
      for (std::int64_t& end : state.input[s]) {
        if (s > 0 && end > 0) end = std::max(end, state.free[s - 1] - transfer());
        if (s == 0) end = 0;
      }
    }
    next.push_back(state);
  }

  // No completion of the state ends before this.
  std::int64_t at_least(const State& state) const {
    std::int64_t bound = 0, way_down = 0;
    for (std::size_t s = 0; s < p_; ++s) {
      const StageTimes& t = times(s);
      const std::int64_t f = m_ - state.done.forward[s], i = m_ - state.done.input[s];
      const std::int64_t w = m_ - state.done.weight[s];
      const std::int64_t chain = state.free[s] + f * t.forward.value + i * t.input_gradient.value;
      bound = std::max(bound, chain + w * t.weight_gradient.value);
      // The last I goes on to stage 0, which ends with its W.
      if (i > 0) bound = std::max(bound, chain + way_down + times(0).weight_gradient.value);
      way_down += t.input_gradient.value + transfer();
    }
    return bound;
  }

  static bool nowhere_later(const State& a, const State& b) {
    for (std::size_t s = 0; s < kStages; ++s) {
      if (a.free[s] > b.free[s]) return false;
      for (std::size_t k = 0; k < kMicrobatches; ++k) {
        if (a.forward[s][k] > b.forward[s][k] || a.input[s][k] > b.input[s][k]) return false;
      }
    }
    return true;
  }

  static std::vector<State> without_dominated(std::vector<State> states) {
    std::ranges::sort(states, [](const State& a, const State& b) {
      if (a.done != b.done) return a.done < b.done;
      if (a.free != b.free) return a.free < b.free;
      if (a.forward != b.forward) return a.forward < b.forward;
      return a.input < b.input;
    });
    std::vector<State> kept;
    std::size_t group = 0;  // first kept state of the same counts
    for (State& state : states) {
      if (!kept.empty() && kept[group].done != state.done) group = kept.size();
      const auto from = kept.begin() + static_cast<std::ptrdiff_t>(group);
      const bool dominated = std::any_of(
          from, kept.end(), [&](const State& other) { return nowhere_later(other, state); });
      if (!dominated) kept.push_back(state);
    }
    return kept;
  }

  Schedule trace_back() const {
    const std::vector<State>& last = layers_.back();
    if (last.empty()) return {};
    const auto makespan = [](const State& state) { return *std::ranges::max_element(state.free); };
    const auto best = std::ranges::min_element(last, {}, makespan);
    std::vector<std::vector<Op>> rows(p_);
    std::int32_t at = static_cast<std::int32_t>(best - last.begin());
    for (std::size_t layer = layers_.size(); layer-- > 1;) {
      const State& state = layers_[layer][static_cast<std::size_t>(at)];
      rows[state.op.stage.index()].push_back(state.op);
      at = state.parent;
    }
    Schedule schedule;
    schedule.placement = task_.placement;
    schedule.microbatches = task_.microbatches;
    for (const std::vector<Op>& row : rows) {
      schedule.ops.insert(schedule.ops.end(), row.rbegin(), row.rend());
      schedule.end_row();
    }
    return schedule;
  }

  const PlanTask& task_;
  std::size_t p_;
  std::int32_t m_;
  std::int64_t bound_;
  std::vector<std::vector<State>> layers_;  // by the number of ops done
};

}  // namespace

bool exact_applies(const PlanTask& task) {
  const std::int32_t p = task.placement.positions;
  return task.split && task.placement.stages() == p && p <= static_cast<std::int32_t>(kStages) &&
         task.microbatches <= static_cast<std::int32_t>(kMicrobatches);
}

Schedule exact_order(const PlanTask& task, std::int64_t bound) {
  return Search(task, bound).run();
}

}  // namespace rehearse
