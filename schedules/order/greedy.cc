// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/greedy.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace rehearse::order {
namespace {

class FirstToStart {
 public:
  FirstToStart(const Placement& placement, std::int32_t microbatches, const StartRule& rule)
      : rule_(rule),
        stages_(placement.stages()),
        places_(static_cast<std::size_t>(placement.positions)),
        rows_(places_.size()) {
    const bool both = !placement.up.empty();
    add(placement.down, 0, both ? placement.first_up : microbatches);
    if (both) add(placement.up, placement.first_up, microbatches);
  }

  // To the end, with what repeats itself copied.
  void run() {
    begin();
    // Shorter orders fill and drain, and hardly repeat anything.
    bool searching = ways_[0].count > static_cast<std::size_t>(4 * stages_);
    while (!next_.empty()) {
      if (searching && begins_a_microbatch()) {
        if (const std::optional<Moment> since = came_again()) {
          searching = false;
          copy_since(*since);
          continue;
        }
      }
      start_next();
    }
  }

  // Up to where it repeats itself.
  Repeats find_repeats() {
    begin();
    for (; !next_.empty(); start_next()) {
      if (!begins_a_microbatch()) continue;
      const std::optional<Moment> since = came_again();
      if (!since) continue;
      std::size_t least = 0;
      for (Direction& way : ways_) least = std::max(least, way.forward[0].size() + together());
      if (least > ways_[0].count) break;  // the last micro-batches may have had a say
      const auto directions = static_cast<std::int32_t>(ways_.size());
      return {.microbatches = directions *
                              static_cast<std::int32_t>(ways_[0].forward[0].size() - since->number),
              .least = directions * static_cast<std::int32_t>(least),
              .later = now() - since->time};
    }
    return {};
  }

  const std::vector<std::vector<Op>>& rows() const { return rows_; }
  std::int64_t end() const { return end_; }

 private:
  using Ends = std::vector<std::int64_t>;  // of a stage's ops so far, by number
  struct Direction {
    std::span<const Position> positions;  // by stage
    std::int32_t first = 0;               // micro-batch
    std::size_t count = 0;
    std::vector<Ends> forward, backward;  // by stage
    std::size_t position(std::int32_t stage) const {
      return positions[static_cast<std::size_t>(stage)].index();
    }
  };
  struct Step {
    std::size_t way = 0;
    std::int32_t stage = 0;
    bool backward = false;
  };
  // When it can start, its slot, backward, position.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, std::size_t>;
  struct Place {
    std::int64_t free = 0;
    std::int32_t kept = 0;
    std::vector<Step> holds;  // what it ever does, micro-batches apart
    Step next;
    std::optional<Key> key;  // of it, in next_
  };
  // Before a micro-batch begins, of the first direction.
  struct Moment {
    std::size_t number = 0;
    std::int64_t time = 0;
    std::vector<std::size_t> lengths;  // of the rows
  };

  void add(std::span<const Position> positions, std::int32_t first, std::int32_t last) {
    const std::size_t way = ways_.size(), stages = positions.size();
    ways_.push_back({.positions = positions,
                     .first = first,
                     .count = static_cast<std::size_t>(last - first),
                     .forward = std::vector<Ends>(stages),
                     .backward = std::vector<Ends>(stages)});
    for (std::int32_t stage = 0; stage < stages_; ++stage) {
      Place& place = places_[ways_.back().position(stage)];
      for (const bool backward : {false, true}) place.holds.push_back({way, stage, backward});
    }
  }

  Ends& ends_of(std::size_t way, bool backward, std::int32_t stage) {
    Direction& direction = ways_[way];
    return (backward ? direction.backward : direction.forward)[static_cast<std::size_t>(stage)];
  }
  std::size_t together() const { return static_cast<std::size_t>(rule_.together); }
  // Micro-batches of a step behind `number` others.
  std::size_t taken(const Step& step, std::size_t number) const {
    return step.backward ? 1 : std::min(together(), ways_[step.way].count - number);
  }

  void begin() {
    for (std::size_t r = 0; r < places_.size(); ++r) look(r);
  }
  std::int64_t now() const { return std::get<0>(*next_.begin()); }
  bool begins_a_microbatch() const {
    const Step& step = places_[std::get<3>(*next_.begin())].next;
    return step.way == 0 && step.stage == 0 && !step.backward;
  }

  void start_next() {
    const std::size_t r = std::get<3>(*next_.begin());
    Place& place = places_[r];
    const Step step = place.next;
    place.free = now() + (step.backward ? rule_.backward_time : rule_.forward_time);
    end_ = std::max(end_, place.free);
    Ends& ends = ends_of(step.way, step.backward, step.stage);
    const OpKind kind = step.backward ? OpKind::Backward : OpKind::Forward;
    for (std::size_t more = taken(step, ends.size()); more > 0; --more) {
      const std::int32_t b = ways_[step.way].first + static_cast<std::int32_t>(ends.size());
      rows_[r].push_back(compute_op(kind, {step.stage}, {b}));
      place.kept += step.backward ? -1 : 1;
      ends.push_back(place.free);
    }
    // It lets its neighbours' ops start, and the next micro-batch of its direction.
    look(r);
    for (const std::int32_t other : {step.stage - 1, step.stage + 1}) {
      if (other >= 0 && other < stages_) look(ways_[step.way].position(other));
    }
  }

  // Finds what the position does next, of what can be said by now.
  void look(std::size_t r) {
    Place& place = places_[r];
    if (place.key) next_.erase(*place.key);
    place.key.reset();
    for (const Step& step : place.holds) {
      const std::optional<std::int64_t> start = start_of(step, place);
      if (!start) continue;
      const auto number =
          static_cast<std::int64_t>(ends_of(step.way, step.backward, step.stage).size());
      const Key key{*start, rule_.slot({step.backward, number, step.stage, stages_}), step.backward,
                    r};
      if (place.key && *place.key < key) continue;
      place.key = key;
      place.next = step;
    }
    if (place.key) next_.insert(*place.key);
  }

  // When its next micro-batch can start; none: that is not known yet, or there is no next.
  std::optional<std::int64_t> start_of(const Step& step, const Place& place) {
    const std::size_t number = ends_of(step.way, step.backward, step.stage).size();
    if (number == ways_[step.way].count) return {};
    std::int64_t start = place.free;
    const auto follows = [&](bool backward, std::int32_t stage, std::size_t of) {
      const Ends& before = ends_of(step.way, backward, stage);
      if (before.size() <= of) return false;
      start = std::max(start, before[of]);
      return true;
    };
    if (step.backward) {
      if (!follows(false, step.stage, number)) return {};
      if (step.stage + 1 < stages_ && !follows(true, step.stage + 1, number)) return {};
      return start;
    }
    if (place.kept + static_cast<std::int64_t>(taken(step, number)) > rule_.kept) return {};
    const auto in_flight = static_cast<std::size_t>(rule_.in_flight);
    if (step.stage > 0) {
      if (!follows(false, step.stage - 1, number)) return {};
    } else if (number >= in_flight && !follows(true, 0, number - in_flight)) {
      return {};
    }
    return start;
  }

  // All that says what follows, relative to the moment: when positions are free, how far each stage
  // is, and when those of its ops end that have not ended. What has is as good as ended now.
  std::vector<std::int64_t> state() {
    std::vector<std::int64_t> all;
    const std::int64_t time = now();
    const auto begun = static_cast<std::int64_t>(ways_[0].forward[0].size());
    for (const Place& place : places_) all.push_back(std::max<std::int64_t>(place.free - time, 0));
    for (const Direction& way : ways_) {
      for (const std::vector<Ends>* of : {&way.forward, &way.backward}) {
        for (const Ends& ends : *of) {
          all.push_back(static_cast<std::int64_t>(ends.size()) - begun);
          for (std::size_t i = ends.size(); i > 0 && ends[i - 1] > time; --i) {
            all.push_back(ends[i - 1] - time);
          }
        }
      }
    }
    return all;
  }
  std::optional<Moment> came_again() {
    Moment here{.number = ways_[0].forward[0].size(), .time = now()};
    for (const std::vector<Op>& row : rows_) here.lengths.push_back(row.size());
    return recurrence_.seen(state(), std::move(here));
  }

  // What was done since then, as often as leaves every direction the micro-batches that it has now,
  // or a few more.
  void copy_since(const Moment& since) {
    const std::size_t repeated = ways_[0].forward[0].size() - since.number;
    std::size_t times = SIZE_MAX;
    for (const Direction& way : ways_) {
      const std::size_t begun = way.forward[0].size() + together();
      times = std::min(times, begun < way.count ? (way.count - begun) / repeated : 0);
    }
    const std::int64_t later = static_cast<std::int64_t>(times) * (now() - since.time);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      std::vector<Op>& row = rows_[r];
      const std::size_t first = since.lengths[r], last = row.size();
      row.reserve(last + times * (last - first));
      for (std::size_t i = first; i < first + times * (last - first); ++i) {
        Op op = row[i];
        op.microbatch.value += static_cast<std::int32_t>(repeated);
        row.push_back(op);
      }
      places_[r].free += later;
    }
    for (Direction& way : ways_) {
      for (std::vector<Ends>* of : {&way.forward, &way.backward}) {
        for (Ends& ends : *of) {
          for (std::int64_t& end : ends) end += later;
          ends.insert(ends.begin(), times * repeated, 0);  // nobody waits for these
        }
      }
    }
    begin();
  }

  StartRule rule_;
  std::int32_t stages_;
  std::vector<Direction> ways_;
  std::vector<Place> places_;
  std::vector<std::vector<Op>> rows_;
  std::set<Key> next_;  // one of each position that has one
  std::int64_t end_ = 0;
  Recurrence<Moment> recurrence_;
};

}  // namespace

GreedyOrder greedy_order(const GreedyTask& task, std::int32_t microbatches) {
  GreedyOrder order;
  order.schedule.placement = task.placement(microbatches);
  order.schedule.microbatches = microbatches;
  FirstToStart starts(order.schedule.placement, microbatches, task.rule);
  starts.run();
  for (const std::vector<Op>& row : starts.rows()) {
    order.schedule.ops.insert(order.schedule.ops.end(), row.begin(), row.end());
    order.schedule.end_row();
  }
  order.end = starts.end();
  return order;
}

Repeats greedy_repeats(const GreedyTask& task, std::int32_t microbatches) {
  const Placement placement = task.placement(microbatches);
  return FirstToStart(placement, microbatches, task.rule).find_repeats();
}

std::int64_t greedy_end(const GreedyTask& task, const Repeats& repeats, std::int32_t microbatches) {
  std::int32_t times = 0;
  if (repeats.microbatches > 0) {
    times = std::max(0, (microbatches - repeats.least) / repeats.microbatches);
  }
  return greedy_order(task, microbatches - times * repeats.microbatches).end +
         times * repeats.later;
}

Growing greedy_growing(GreedyTask task, const Repeats& repeats) {
  return {.repeated = repeats.microbatches,
          .least = repeats.least,
          .with = [task = std::move(task)](std::int32_t microbatches) -> Result<Schedule> {
            return greedy_order(task, microbatches).schedule;
          }};
}

std::int64_t backwards_first(const NextOp& op) {
  return (op.backward ? 0 : kKindSlots) + op.number * kNumberSlots + op.stages - op.stage;
}

}  // namespace rehearse::order
