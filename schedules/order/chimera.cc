// SPDX-License-Identifier: Apache-2.0
// Chimera: two pipelines in opposite directions, each position holding a stage of either.
// Source: Li & Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
// Bidirectional Pipelines", SC'21 (arXiv 2107.06925), figure 3, for as many micro-batches as
// positions. For more its section 3.5 concatenates that, which loses (p-2)(m/p + 1), or doubles
// forwards, for twice the activations. The rule here loses 2(p-2), as doubling does, with any even
// number of micro-batches and at most p activations.
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

// With F = 1, B = 2: again and again what can start first; of several what would stand first if
// each direction were alone and every op a slot, micro-batch j's F on stage s at s + 2j, its B at
// 2p-1-s + 2j. A forward waits while its position keeps p activations.
class Greedy {
 public:
  Greedy(std::int32_t p, std::int32_t m)
      : p_(p), half_(static_cast<std::size_t>(m / 2)), positions_(static_cast<std::size_t>(p)) {
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
      place.free = start + (step.backward ? 2 : 1);
      place.kept += step.backward ? -1 : 1;
      ends(way, step.backward, stage_of(step, r)).push_back(place.free);
      rows[static_cast<std::size_t>(r)].push_back(step);
      // What it lets start lies on this position and on those beside it.
      for (std::int32_t k = std::max(r - 1, 0); k <= std::min(r + 1, p_ - 1); ++k) look(k);
    }
    return rows;
  }

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
    if (number == half_ || (!step.backward && place.kept >= p_)) return;
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
    const std::int64_t slot =
        2 * static_cast<std::int64_t>(number) + (step.backward ? 2 * p_ - 1 - stage : stage);
    const Key key{start, slot, step.backward, r};
    if (place.key && *place.key < key) return;
    place.key = key;
    place.next = {start, step};
  }

  std::int32_t p_;
  std::size_t half_;
  std::array<Direction, 2> ways_;
  std::vector<Place> positions_;
  std::set<Key> next_;  // one of each position that has one
};

// From 4p micro-batches on the rule repeats itself: two more, one of each direction, are an F and a
// B of each more in the middle of every row.
Rows many(std::int32_t p, std::int32_t m) {
  if (m <= 4 * p) return Greedy(p, m).run();
  Rows rows = Greedy(p, 4 * p).run();
  const Rows longer = Greedy(p, 4 * p + 2).run();
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

}  // namespace

Result<Schedule> chimera(const ScheduleShape& shape) {
  const std::int32_t p = shape.positions, m = shape.microbatches, half = m / 2;
  Schedule schedule;
  schedule.placement = bidirectional_placement(p, half);
  const Rows rows = many(p, m);
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

}  // namespace rehearse::order
