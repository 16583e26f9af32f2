// SPDX-License-Identifier: Apache-2.0
// Chimera: two pipelines in opposite directions, each position holding a stage of either.
// Source: Li & Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
// Bidirectional Pipelines", SC'21 (arXiv 2107.06925), figure 3, for as many micro-batches as
// positions. For more its section 3.5 concatenates that, which loses (p-2)(m/p + 1); doubles
// forwards, two micro-batches in one, so that every op is as long, for twice the activations; or
// halves backwards, which is the same order of half micro-batches. The rule of chimera loses
// 2(p-2), as doubling does, with any even number of micro-batches and at most p activations.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "schedules/order/orders.h"

namespace rehearse::order {
namespace {

// What a position does next: micro-batches of a kind and direction come in order.
struct Step {
  bool backward = false, up = false;
  bool operator==(const Step&) const = default;
};
using Rows = std::vector<std::vector<Step>>;

// How long ops are, how many micro-batches a forward takes at once, and what goes first.
struct Rule {
  std::int32_t together = 1, backward_time = 2;  // a forward takes 1
  std::int32_t kept = 0;                         // activations of a position at most
  // Where several ops can start at the same time, the lowest slot goes first. `number`:
  // micro-batches of its direction before it.
  std::int64_t (*slot)(std::int32_t p, Step step, std::int64_t number,
                       std::int32_t stage) = nullptr;
};

// Again and again what can start first. A forward waits while its position keeps too many
// activations.
class Greedy {
 public:
  Greedy(std::int32_t p, std::int32_t m, const Rule& rule)
      : p_(p),
        rule_(rule),
        half_(static_cast<std::size_t>(m / 2)),
        positions_(static_cast<std::size_t>(p)) {
    for (Direction& direction : ways_) {
      direction.forward.resize(positions_.size());
      direction.backward.resize(positions_.size());
    }
  }

  Rows run() {
    for (std::int32_t r = 0; r < p_; ++r) look(r);
    Rows rows(positions_.size());
    while (!next_.empty()) {
      const std::int32_t r = std::get<3>(*next_.begin());
      Place& place = positions_[static_cast<std::size_t>(r)];
      const auto [start, step] = place.next;
      Direction& way = ways_[step.up ? 1 : 0];
      place.free = start + (step.backward ? rule_.backward_time : 1);
      makespan_ = std::max(makespan_, place.free);
      Ends& ended = ends(way, step.backward, stage_of(step, r));
      for (std::size_t i = taken(step, ended.size()); i > 0; --i) {
        place.kept += step.backward ? -1 : 1;
        ended.push_back(place.free);
        rows[static_cast<std::size_t>(r)].push_back(step);
      }
      // What it lets start lies on this position and on those beside it.
      for (std::int32_t k = std::max(r - 1, 0); k <= std::min(r + 1, p_ - 1); ++k) look(k);
    }
    return rows;
  }
  std::int64_t makespan() const { return makespan_; }

 private:
  // When it can start, its slot, backward, position.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, std::int32_t>;
  using Ends = std::vector<std::int64_t>;  // of a stage's ops so far, by number
  struct Direction {
    std::vector<Ends> forward, backward;  // by stage
  };
  struct Place {
    std::int64_t free = 0;
    std::int32_t kept = 0;
    std::pair<std::int64_t, Step> next;
    std::optional<Key> key;  // of it, in next_
  };

  std::int32_t stage_of(Step step, std::int32_t position) const {
    return step.up ? p_ - 1 - position : position;
  }
  // Micro-batches of an op behind `number` others.
  std::size_t taken(Step step, std::size_t number) const {
    return step.backward ? 1 : std::min(static_cast<std::size_t>(rule_.together), half_ - number);
  }
  static Ends& ends(Direction& way, bool backward, std::int32_t stage) {
    return (backward ? way.backward : way.forward)[static_cast<std::size_t>(stage)];
  }

  // Finds what the position does next, of what can be said by now.
  void look(std::int32_t r) {
    Place& place = positions_[static_cast<std::size_t>(r)];
    if (place.key) next_.erase(*place.key);
    place.key.reset();
    for (const bool up : {false, true}) {
      for (const bool backward : {false, true}) consider(r, {backward, up}, place);
    }
    if (place.key) next_.insert(*place.key);
  }

  void consider(std::int32_t r, Step step, Place& place) {
    Direction& way = ways_[step.up ? 1 : 0];
    const std::int32_t stage = stage_of(step, r);
    const std::size_t number = ends(way, step.backward, stage).size();
    if (number == half_) return;
    const auto more = static_cast<std::int32_t>(taken(step, number));
    if (!step.backward && place.kept + more > rule_.kept) return;
    std::int64_t start = place.free;
    const auto follows = [&](bool backward_before, std::int32_t stage_before) {
      const Ends& before = ends(way, backward_before, stage_before);
      if (before.size() <= number) return false;
      start = std::max(start, before[number]);
      return true;
    };
    if (!step.backward && stage > 0 && !follows(false, stage - 1)) return;
    if (step.backward && !follows(false, stage)) return;
    if (step.backward && stage + 1 < p_ && !follows(true, stage + 1)) return;
    const std::int64_t slot = rule_.slot(p_, step, static_cast<std::int64_t>(number), stage);
    const Key key{start, slot, step.backward, r};
    if (place.key && *place.key < key) return;
    place.key = key;
    place.next = {start, step};
  }

  std::int32_t p_;
  Rule rule_;
  std::size_t half_;
  std::int64_t makespan_ = 0;
  std::array<Direction, 2> ways_;
  std::vector<Place> positions_;
  std::set<Key> next_;  // one of each position that has one
};

// What would stand first if each direction were alone and every op a slot, micro-batch j's F on
// stage s at s + 2j, its B at 2p-1-s + 2j.
Rule one_by_one(std::int32_t p) {
  return {.kept = p,
          .slot = [](std::int32_t of, Step step, std::int64_t number, std::int32_t stage) {
            return 2 * number + (step.backward ? 2 * of - 1 - stage : stage);
          }};
}

// Two forwards take as long as a backward: a slot each. First what is of one kind, then the lower
// number and stage.
constexpr std::int64_t kKind = std::int64_t{1} << 56, kNumber = std::int64_t{1} << 20;
Rule doubled(std::int32_t p, bool backward_first) {
  Rule rule{.together = 2, .backward_time = 1, .kept = 2 * p};
  if (backward_first) {
    rule.slot = [](std::int32_t, Step step, std::int64_t number, std::int32_t stage) {
      return (step.backward ? 0 : kKind) + number * kNumber + stage;
    };
  } else {
    rule.slot = [](std::int32_t, Step step, std::int64_t number, std::int32_t stage) {
      return (step.backward ? kKind : 0) + number * kNumber + stage;
    };
  }
  return rule;
}

// The better of the two, whichever that is for p and m.
Rows doubled_rows(std::int32_t p, std::int32_t m) {
  Greedy backwards(p, m, doubled(p, true)), forwards(p, m, doubled(p, false));
  Rows one = backwards.run(), other = forwards.run();
  return forwards.makespan() < backwards.makespan() ? other : one;
}

// From 4p micro-batches on the rule repeats itself: two more, one of each direction, are an F and a
// B of each more in the middle of every row.
Rows many(std::int32_t p, std::int32_t m) {
  const Rule rule = one_by_one(p);
  if (m <= 4 * p) return Greedy(p, m, rule).run();
  Rows rows = Greedy(p, 4 * p, rule).run();
  const Rows longer = Greedy(p, 4 * p + 2, rule).run();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto differs = std::ranges::mismatch(rows[r], longer[r]);
    const auto place = differs.in1 - rows[r].begin();
    std::vector<Step> middle;
    for (std::int32_t i = 4 * p; i < m; i += 2) {
      middle.insert(middle.end(), differs.in2, differs.in2 + 4);
    }
    rows[r].insert(rows[r].begin() + place, middle.begin(), middle.end());
  }
  return rows;
}

Result<Schedule> schedule_of(const Rows& rows, std::int32_t p, std::int32_t m) {
  const std::int32_t half = m / 2;
  Schedule schedule;
  schedule.placement = bidirectional_placement(p, half);
  for (std::int32_t r = 0; r < p; ++r) {
    std::array<std::array<std::int32_t, 2>, 2> next{{{0, half}, {0, half}}};  // by kind, direction
    for (const auto& [backward, up] : rows[static_cast<std::size_t>(r)]) {
      std::int32_t& number = next[backward ? 1 : 0][up ? 1 : 0];
      schedule.ops.push_back(compute_op(backward ? OpKind::Backward : OpKind::Forward,
                                        {up ? p - 1 - r : r}, {number++}));
    }
    schedule.end_row();
  }
  return schedule;
}

}  // namespace

Result<Schedule> chimera(const ScheduleShape& shape) {
  return schedule_of(many(shape.positions, shape.microbatches), shape.positions,
                     shape.microbatches);
}

Result<Schedule> chimera_doubled(const ScheduleShape& shape) {
  return schedule_of(doubled_rows(shape.positions, shape.microbatches), shape.positions,
                     shape.microbatches);
}

}  // namespace rehearse::order
