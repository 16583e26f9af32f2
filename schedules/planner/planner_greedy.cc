// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/planner_greedy.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace rehearse {
namespace {

constexpr std::int64_t kNever = INT64_MAX / 4, kNotYet = -1;

// When each lane next decides, and which of them decides first: a tournament, so that pipelines of
// many positions do not look through all of them for every op.
class Wakes {
 public:
  explicit Wakes(std::size_t lanes) : first_(std::bit_ceil(std::max<std::size_t>(lanes, 1))) {
    times_.assign(2 * first_, kNever);
  }
  std::int64_t operator[](std::size_t lane) const { return times_[first_ + lane]; }
  void set(std::size_t lane, std::int64_t time) {
    std::size_t at = first_ + lane;
    times_[at] = time;
    for (at /= 2; at > 0; at /= 2) {
      const std::int64_t earlier = std::min(times_[2 * at], times_[2 * at + 1]);
      if (times_[at] == earlier) break;
      times_[at] = earlier;
    }
  }
  // Among those that decide at the same time, the one with the lowest number.
  std::size_t next() const {
    std::size_t at = 1;
    while (at < first_) at = 2 * at + (times_[2 * at] <= times_[2 * at + 1] ? 0 : 1);
    return at - first_;
  }

 private:
  std::size_t first_;                // of the lanes' places; before them the winners of pairs
  std::vector<std::int64_t> times_;  // times_[1]: of all
};

class Greedy {
 public:
  Greedy(const PlanTask& task, const GreedyRule& rule)
      : task_(task),
        rule_(rule),
        stages_(task.placement.stages()),
        m_(task.microbatches),
        wakes_(static_cast<std::size_t>(task.placement.positions)) {
    const auto stages = static_cast<std::size_t>(stages_);
    const auto rows = static_cast<std::size_t>(task.placement.positions);
    done_.resize(stages);
    chunk_.resize(stages);
    lanes_.resize(rows);
    forward_end_.assign(stages * static_cast<std::size_t>(m_), kNotYet);
    backward_end_ = forward_end_;
    for (Stage s{0}; s.value < stages_; ++s.value) {
      Lane& lane = lane_of(s);
      chunk_[s.index()] = static_cast<std::int32_t>(lane.stages.size());
      lane.stages.push_back(s);
    }
  }

  Schedule run() {
    begin();
    const std::int64_t kinds = task_.split ? 3 : 2;
    for (std::int64_t left = kinds * stages_ * m_; left > 0;) {
      Lane& lane = lanes_[wakes_.next()];
      if (wake_of(lane) >= kNever) return {};  // everybody waits
      if (step(lane)) --left;
    }
    Schedule schedule;
    schedule.placement = task_.placement;
    schedule.microbatches = m_;
    for (const Lane& lane : lanes_) {
      schedule.ops.insert(schedule.ops.end(), lane.ops.begin(), lane.ops.end());
      schedule.end_row();
    }
    return schedule;
  }

  // Up to where it repeats itself.
  Repeats find_repeats() {
    Recurrence<Moment> recurrence;
    begin();
    while (done_[0].forwards < m_) {
      const std::int32_t begun = done_[0].forwards;
      Lane& lane = lanes_[wakes_.next()];
      const std::int64_t now = wake_of(lane);
      if (now >= kNever) return {};  // everybody waits
      step(lane);
      if (done_[0].forwards == begun || done_[0].forwards == m_) continue;
      const std::optional<Moment> since = recurrence.seen(state(now), {begun, now});
      if (since) {
        return {.microbatches = begun - since->begun,
                .least = done_[0].forwards + 1,
                .later = now - since->time};
      }
    }
    return {};
  }

 private:
  struct Done {
    std::int32_t forwards = 0, backwards = 0, weights = 0;
  };
  // Behind the decision to begin a micro-batch.
  struct Moment {
    std::int32_t begun = 0;
    std::int64_t time = 0;
  };
  struct Lane {
    std::vector<Stage> stages;  // in the order in which a micro-batch visits them
    std::vector<Op> ops;
    std::int64_t free = 0;   // when its last op ends
    std::int64_t alive = 0;  // activations, in halves
    OpKind last = OpKind::WeightGradient;
  };
  struct Choice {
    OpKind kind{};
    Stage stage{};
    std::int64_t place = 0, ready = 0;
  };

  Lane& lane_of(Stage s) { return lanes_[task_.placement.down[s.index()].index()]; }
  std::size_t number_of(const Lane& lane) const {
    return static_cast<std::size_t>(&lane - lanes_.data());
  }
  std::int64_t wake_of(const Lane& lane) const { return wakes_[number_of(lane)]; }
  std::size_t at(Stage s, std::int32_t microbatch) const {
    return s.index() * static_cast<std::size_t>(m_) + static_cast<std::size_t>(microbatch);
  }
  std::int64_t delay(Stage from, Stage to) const {
    const bool remote = task_.placement.down[from.index()] != task_.placement.down[to.index()];
    return remote ? task_.times.transfer.value : 0;
  }
  OpKind backward_kind() const { return task_.split ? OpKind::InputGradient : OpKind::Backward; }
  std::int64_t duration(OpKind kind, Stage s) const {
    const StageTimes& times = task_.times.of(s);
    switch (kind) {
      case OpKind::Forward:
        return times.forward.value;
      case OpKind::Backward:
        return times.backward.value;
      case OpKind::InputGradient:
        return times.input_gradient.value;
      default:
        return times.weight_gradient.value;
    }
  }
  std::int64_t forward_place(Stage s, std::int32_t microbatch) const {
    return rule_.interval * microbatch + rule_.forward_place[s.index()];
  }
  std::int64_t backward_place(Stage s, std::int32_t microbatch) const {
    return rule_.interval * microbatch + rule_.backward_place[s.index()];
  }

  // When the next forward or backward of the stage can start; kNever while nobody knows.
  std::int64_t forward_ready(Stage s) const {
    const std::int32_t b = done_[s.index()].forwards;
    if (b == m_) return kNever;
    if (s.value == 0) return 0;
    const Stage before{s.value - 1};
    const std::int64_t end = forward_end_[at(before, b)];
    return end == kNotYet ? kNever : end + delay(before, s);
  }
  std::int64_t backward_ready(Stage s) const {
    const Done& done = done_[s.index()];
    const std::int32_t b = done.backwards;
    if (b == done.forwards) return kNever;
    const std::int64_t own = forward_end_[at(s, b)];
    const Stage after{s.value + 1};
    if (after.value == stages_) return own;
    const std::int64_t end = backward_end_[at(after, b)];
    return end == kNotYet ? kNever : std::max(own, end + delay(after, s));
  }

  void begin() { wakes_.set(number_of(lane_of({0})), 0); }

  // All that says what follows, relative to the moment: when positions decide and are free, how far
  // each stage is, and when those of its ops end whose results have not arrived.
  std::vector<std::int64_t> state(std::int64_t now) const {
    std::vector<std::int64_t> all;
    const std::int64_t arrived = now - task_.times.transfer.value;
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      all.push_back(wakes_[l] >= kNever ? kNever : wakes_[l] - now);
      all.push_back(std::max(lanes_[l].free, arrived) - now);
      all.push_back(static_cast<std::int64_t>(lanes_[l].last));
    }
    const std::int32_t begun = done_[0].forwards;
    for (Stage s{0}; s.value < stages_; ++s.value) {
      const auto put = [&](std::int32_t count, const std::vector<std::int64_t>& ends) {
        all.push_back(count - begun);
        for (; count > 0 && ends[at(s, count - 1)] > arrived; --count) {
          all.push_back(ends[at(s, count - 1)] - now);
        }
      };
      const Done& done = done_[s.index()];
      put(done.forwards, forward_end_);
      put(done.backwards, backward_end_);
      if (task_.split) all.push_back(done.weights - begun);
    }
    return all;
  }

  // A micro-batch that has entered must be able to leave: a forward leaves room for those of the
  // later chunks that come before it (in the pattern), or for one (without a pattern).
  bool has_room(const Lane& lane, Stage s) const {
    std::int64_t reserve = 0;
    const Done& done = done_[s.index()];
    const std::int64_t place = forward_place(s, done.forwards);
    for (const Stage later : lane.stages) {
      if (chunk_[later.index()] <= chunk_[s.index()]) continue;
      if (rule_.interval == 0) {
        reserve += 2;
        continue;
      }
      const std::int64_t distance = place - rule_.forward_place[later.index()];
      if (distance < 0) continue;
      const std::int64_t before = std::min<std::int64_t>(m_, distance / rule_.interval + 1);
      reserve += 2 * std::max<std::int64_t>(0, before - done_[later.index()].forwards);
    }
    if (lane.alive + 2 + reserve > task_.limit_halves) return false;
    if (rule_.in_flight.empty() || chunk_[s.index()] != 0) return true;
    const Position here = task_.placement.down[s.index()];
    return done.forwards - done.backwards < rule_.in_flight[here.index()];
  }

  // The earliest op of the pattern that the position has not run.
  std::int64_t next_place(const Lane& lane) const {
    std::int64_t place = kNever;  // only W's are left
    for (const Stage s : lane.stages) {
      const Done& done = done_[s.index()];
      if (done.forwards < m_) place = std::min(place, forward_place(s, done.forwards));
      if (done.backwards < m_) place = std::min(place, backward_place(s, done.backwards));
    }
    return place;
  }

  // One decision of the position that is next in time; true if it runs an op.
  bool step(Lane& lane) {
    const std::int64_t now = wake_of(lane);
    std::int64_t horizon = INT64_MAX;
    if (rule_.ahead < kNever) horizon = next_place(lane) + rule_.ahead;
    candidates_.clear();
    bool blocked = false;  // something is ready and only memory is missing
    for (const Stage s : lane.stages) {
      const std::int64_t forward = forward_ready(s);
      if (forward < kNever) {
        const std::int64_t place = forward_place(s, done_[s.index()].forwards);
        if (place <= horizon && has_room(lane, s)) {
          candidates_.push_back({OpKind::Forward, s, place, std::max(now, forward)});
        } else {
          blocked = blocked || forward <= now;
        }
      }
      const std::int64_t backward = backward_ready(s);
      if (backward < kNever) {
        const std::int64_t place = backward_place(s, done_[s.index()].backwards);
        candidates_.push_back({backward_kind(), s, place, std::max(now, backward)});
      }
    }
    const Choice* best = nullptr;
    std::int64_t next = kNever;
    for (const Choice& choice : candidates_) {
      if (choice.ready > now) {
        next = std::min(next, choice.ready);
      } else if (best == nullptr || before(choice, *best, lane)) {
        best = &choice;
      }
    }
    if (best != nullptr) {
      if (!worth_waiting(*best, now, lane)) return start(lane, best->kind, best->stage, now);
      blocked = false;
    }
    const Stage fill = oldest_weight(lane);
    if (fill) {
      const double weight = static_cast<double>(duration(OpKind::WeightGradient, fill));
      if (blocked || static_cast<double>(next - now) >= weight * (1 - rule_.filler)) {
        return start(lane, OpKind::WeightGradient, fill, now);
      }
    }
    wakes_.set(number_of(lane), next);
    return false;
  }

  bool before(const Choice& a, const Choice& b, const Lane& lane) const {
    if (rule_.alternate && (a.kind == lane.last) != (b.kind == lane.last)) {
      return b.kind == lane.last;
    }
    return a.place < b.place;
  }
  bool worth_waiting(const Choice& best, std::int64_t now, const Lane& lane) const {
    if (rule_.patience <= 0) return false;
    const double most = rule_.patience * static_cast<double>(duration(best.kind, best.stage));
    return std::ranges::any_of(candidates_, [&](const Choice& other) {
      return other.ready > now && before(other, best, lane) &&
             static_cast<double>(other.ready - now) <= most;
    });
  }
  Stage oldest_weight(const Lane& lane) const {
    Stage oldest{};
    if (!task_.split) return oldest;
    for (const Stage s : lane.stages) {
      const Done& done = done_[s.index()];
      if (done.weights == done.backwards) continue;
      if (!oldest || weight_before(s, oldest)) oldest = s;
    }
    return oldest;
  }
  bool weight_before(Stage a, Stage b) const {
    if (rule_.interval == 0) return a > b;
    return backward_place(a, done_[a.index()].weights) <
           backward_place(b, done_[b.index()].weights);
  }

  bool start(Lane& lane, OpKind kind, Stage s, std::int64_t now) {
    Done& done = done_[s.index()];
    const std::int64_t end = now + duration(kind, s);
    std::int32_t b = 0;
    Stage consumer{};
    if (kind == OpKind::Forward) {
      b = done.forwards++;
      lane.alive += 2;
      forward_end_[at(s, b)] = end;
      consumer = {s.value + 1 < stages_ ? s.value + 1 : -1};
    } else if (kind == OpKind::WeightGradient) {
      b = done.weights++;
      lane.alive -= task_.held_until_weight ? 2 : 1;
    } else {
      b = done.backwards++;
      lane.alive -= !task_.split ? 2 : task_.held_until_weight ? 0 : 1;
      backward_end_[at(s, b)] = end;
      consumer = {s.value - 1};
    }
    lane.ops.push_back(compute_op(kind, s, {b}));
    lane.last = kind;
    lane.free = end;
    wakes_.set(number_of(lane), end);
    if (consumer) {
      Lane& other = lane_of(consumer);
      if (&other != &lane) {
        const std::int64_t ready = std::max(other.free, end + delay(s, consumer));
        if (ready < wake_of(other)) wakes_.set(number_of(other), ready);
      }
    }
    return true;
  }

  const PlanTask& task_;
  const GreedyRule& rule_;
  std::int32_t stages_, m_;
  std::vector<Done> done_;
  std::vector<std::int32_t> chunk_;  // per stage: how many stages of its position come before it
  std::vector<Lane> lanes_;
  Wakes wakes_;
  std::vector<std::int64_t> forward_end_, backward_end_;  // by (stage, micro-batch)
  std::vector<Choice> candidates_;
};

}  // namespace

Schedule greedy_order(const PlanTask& task, const GreedyRule& rule) {
  return Greedy(task, rule).run();
}

Repeats greedy_repeats(const PlanTask& task, const GreedyRule& rule) {
  // What looks ahead of the micro-batch that it is asked for might see the last.
  if (rule.interval > 0 && !std::ranges::is_sorted(rule.forward_place)) return {};
  return Greedy(task, rule).find_repeats();
}

GreedyRule priorities(const Placement& placement, const std::vector<std::int64_t>& forward,
                      const std::vector<std::int64_t>& backward) {
  GreedyRule rule;
  std::vector<std::size_t> visited(static_cast<std::size_t>(placement.positions), 0);
  for (const Position position : placement.down) {
    const std::size_t chunk = visited[position.index()]++;
    rule.forward_place.push_back(forward[std::min(chunk, forward.size() - 1)]);
    rule.backward_place.push_back(backward[std::min(chunk, backward.size() - 1)]);
  }
  return rule;
}

}  // namespace rehearse
