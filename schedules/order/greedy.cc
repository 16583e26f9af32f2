// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/greedy.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace rehearse::order {
namespace {

constexpr std::int64_t kForwardTime = 1, kBackwardTime = 2;

class FirstToStart {
 public:
  FirstToStart(const Placement& placement, std::int32_t microbatches, std::int32_t in_flight)
      : in_flight_(static_cast<std::size_t>(in_flight)),
        stages_(placement.stages()),
        places_(static_cast<std::size_t>(placement.positions)) {
    const bool both = !placement.up.empty();
    add(placement.down, 0, both ? placement.first_up : microbatches);
    if (both) add(placement.up, placement.first_up, microbatches);
  }

  std::vector<std::vector<Op>> run() {
    for (std::size_t r = 0; r < places_.size(); ++r) look(r);
    std::vector<std::vector<Op>> rows(places_.size());
    while (!next_.empty()) {
      const std::size_t r = std::get<4>(*next_.begin());
      Place& place = places_[r];
      const Step step = place.next;
      const std::int64_t start = std::get<0>(*place.key);
      place.free = start + (step.backward ? kBackwardTime : kForwardTime);
      Ends& ends = ends_of(step.way, step.backward, step.stage);
      const Direction& way = ways_[step.way];
      rows[r].push_back(compute_op(step.backward ? OpKind::Backward : OpKind::Forward, {step.stage},
                                   {way.first + static_cast<std::int32_t>(ends.size())}));
      ends.push_back(place.free);
      // It lets its neighbours' ops start, and the next micro-batch of its direction.
      look(r);
      for (const std::int32_t other : {step.stage - 1, step.stage + 1}) {
        if (other >= 0 && other < stages_) look(way.position(other));
      }
    }
    return rows;
  }

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
  // When it can start, forward, number in its direction, stages behind it, position.
  using Key = std::tuple<std::int64_t, bool, std::size_t, std::int32_t, std::size_t>;
  struct Place {
    std::int64_t free = 0;
    std::vector<Step> holds;  // what it ever does, micro-batches apart
    Step next;
    std::optional<Key> key;  // of it, in next_
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

  // Finds what the position does next, of what can be said by now.
  void look(std::size_t r) {
    Place& place = places_[r];
    if (place.key) next_.erase(*place.key);
    place.key.reset();
    for (const Step& step : place.holds) {
      const std::optional<std::int64_t> start = start_of(step, place.free);
      if (!start) continue;
      const Key key{*start, !step.backward, ends_of(step.way, step.backward, step.stage).size(),
                    stages_ - step.stage, r};
      if (place.key && *place.key < key) continue;
      place.key = key;
      place.next = step;
    }
    if (place.key) next_.insert(*place.key);
  }

  // When its next micro-batch can start; none: that is not known yet, or there is no next.
  std::optional<std::int64_t> start_of(const Step& step, std::int64_t free) {
    const std::size_t number = ends_of(step.way, step.backward, step.stage).size();
    if (number == ways_[step.way].count) return {};
    std::int64_t start = free;
    const auto follows = [&](bool backward, std::int32_t stage, std::size_t of) {
      const Ends& before = ends_of(step.way, backward, stage);
      if (before.size() <= of) return false;
      start = std::max(start, before[of]);
      return true;
    };
    if (step.backward) {
      if (!follows(false, step.stage, number)) return {};
      if (step.stage + 1 < stages_ && !follows(true, step.stage + 1, number)) return {};
    } else if (step.stage > 0) {
      if (!follows(false, step.stage - 1, number)) return {};
    } else if (number >= in_flight_ && !follows(true, 0, number - in_flight_)) {
      return {};
    }
    return start;
  }

  std::size_t in_flight_;
  std::int32_t stages_;
  std::vector<Direction> ways_;
  std::vector<Place> places_;
  std::set<Key> next_;  // one of each position that has one
};

}  // namespace

Schedule greedy_order(Placement placement, std::int32_t microbatches, std::int32_t in_flight) {
  Schedule schedule;
  schedule.placement = std::move(placement);
  for (const std::vector<Op>& row :
       FirstToStart(schedule.placement, microbatches, in_flight).run()) {
    schedule.ops.insert(schedule.ops.end(), row.begin(), row.end());
    schedule.end_row();
  }
  return schedule;
}

}  // namespace rehearse::order
