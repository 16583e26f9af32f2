// SPDX-License-Identifier: Apache-2.0
#include "schedules/planner/lower_bound.h"

#include <algorithm>

namespace rehearse {
namespace {

class Bound {
 public:
  explicit Bound(const PlanTask& task) : task_(task) {
    for (Stage s{0}; s.value < task.placement.stages(); ++s.value) {
      const StageTimes& times = task.times.of(s);
      const std::int64_t input = (task.split ? times.input_gradient : times.backward).value;
      const std::int64_t weight = task.split ? times.weight_gradient.value : 0;
      const bool first = s.value == 0;
      down_.push_back(first ? 0 : down_.back() + forward_.back() + moved(s));
      up_.push_back(first ? weight : up_.back() + back_.back() + moved(s));
      forward_.push_back(times.forward.value);
      input_.push_back(input);
      back_.push_back(input - times.recompute.value);
      weight_.push_back(weight);
    }
  }

  std::int64_t largest() const {
    std::int64_t bound = 0;
    for (Position r{0}; r.value < task_.placement.positions; ++r.value) {
      bound = std::max(bound, of_position(r));
    }
    for (std::size_t s = 0; s < down_.size(); ++s) bound = std::max(bound, of_memory(s));
    return bound;
  }

 private:
  // The transfer from the stage before.
  std::int64_t moved(Stage s) const {
    const std::vector<Position>& at = task_.placement.down;
    return at[s.index()] == at[s.index() - 1] ? 0 : task_.times.transfer.value;
  }

  std::int64_t of_position(Position r) const {
    std::int64_t down = INT64_MAX, up = INT64_MAX, two_ways = 0, weights = 0;
    for (std::size_t s = 0; s < down_.size(); ++s) {
      if (task_.placement.down[s] != r) continue;
      down = std::min(down, down_[s]);
      up = std::min(up, up_[s]);
      two_ways += forward_[s] + input_[s];
      weights += weight_[s];
    }
    if (down == INT64_MAX) return 0;  // no stage lies here
    return down + task_.microbatches * two_ways + std::max(task_.microbatches * weights, up);
  }

  std::int64_t of_memory(std::size_t s) const {
    const std::int64_t alive = std::max<std::int64_t>(1, task_.limit_halves / 2);
    std::int64_t around = 0;
    for (std::size_t u = s; u < down_.size(); ++u) {
      around += forward_[u] + back_[u];
      if (u > s) around += 2 * moved({static_cast<std::int32_t>(u)});
    }
    return down_[s] + (1 + (task_.microbatches - 1) / alive) * around + up_[s];
  }

  const PlanTask& task_;
  // By stage; back: of input what is on a micro-batch's way.
  std::vector<std::int64_t> forward_, input_, back_, weight_, down_, up_;
};

}  // namespace

std::int64_t makespan_bound(const PlanTask& task) {
  return Bound(task).largest();
}

}  // namespace rehearse
