// SPDX-License-Identifier: Apache-2.0
#include "schedules/order/place_recompute.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "schedules/ir/stage_index.h"

namespace rehearse {
namespace {

Op recompute_of(const Op& backward) {
  Op op = compute_op(OpKind::Recompute, backward.stage, backward.microbatch);
  op.slice = backward.slice;
  return op;
}

// The order with an R before those of its ops that are marked.
Schedule with_recompute(const Schedule& order, const std::vector<bool>& marked) {
  Schedule made = order;
  made.ops.clear();
  made.row_begin = {0};
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    for (std::size_t i = order.first_op(row); i < order.first_op({row.value + 1}); ++i) {
      if (marked[i]) made.ops.push_back(recompute_of(order.ops[i]));
      made.ops.push_back(order.ops[i]);
    }
    made.end_row();
  }
  return made;
}

// With all of them apart: by op of `order`, whether its gradient comes behind the begin of its R.
// Without the others nothing moves: they begin with the R that they then do themselves.
std::vector<bool> that_wait(const Schedule& order, const Schedule& all, const ComputeTiming& timing,
                            const ComputeTimes& times) {
  const StageIndex index(all);
  std::vector<bool> wait;
  wait.reserve(order.ops.size());
  for (std::int32_t id = 0; id < all.num_ops(); ++id) {
    const Op& op = all.ops[static_cast<std::size_t>(id)];
    if (op.kind == OpKind::Recompute) continue;
    const bool behind =
        id > 0 && all.ops[static_cast<std::size_t>(id) - 1].kind == OpKind::Recompute;
    const std::int32_t producer = behind ? index.producer(0, op) : -1;
    bool waits = false;
    if (producer >= 0) {
      const Placement& at = all.placement;
      const bool remote =
          at.position({op.stage.value + 1}, op.microbatch) != at.position(op.stage, op.microbatch);
      const Nanoseconds comes = timing.end[static_cast<std::size_t>(producer)] +
                                (remote ? times.transfer : Nanoseconds{0});
      waits = comes > timing.start[static_cast<std::size_t>(id) - 1];
    }
    wait.push_back(waits);
  }
  return wait;
}

// A row's memory op by op, in activations as metrics.h counts them: I frees half of one, W the
// other.
class RowRoom {
 public:
  RowRoom(const RecomputeRoom& room, const Schedule& order, RankClass row)
      : room_(room), order_(order), first_(order.first_op(row)) {
    double alive = 0;
    for (std::size_t i = first_; i < order.first_op({row.value + 1}); ++i) {
      double most = alive;
      for (const Op& work : work_of(order, order.ops[i])) {
        alive += change(work.kind);
        most = std::max(most, alive);
        if (work.kind == OpKind::WeightGradient) weight_at_[key(work)] = i;
      }
      during_.push_back(most);
    }
  }

  // Whether an R directly before op `i`, a B or I, has room; then it takes it.
  bool take(std::size_t i) {
    const Op& op = order_.ops[i];
    if (room_.left.empty()) return false;
    const RecomputeRoom::Left& left = room_.left[op.stage.index()];
    const auto weight = weight_at_.find(key(op));
    const bool split = op.kind == OpKind::InputGradient && weight != weight_at_.end();
    const std::size_t end = split ? weight->second : i;
    const auto more = [&](std::size_t j) { return left.weight + (j == i ? left.input : 0); };
    for (std::size_t j = i; j <= end; ++j) {
      if (during_[j - first_] + more(j) > room_.most + 1e-9) return false;
    }
    for (std::size_t j = i; j <= end; ++j) during_[j - first_] += more(j);
    return true;
  }

 private:
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t>;
  static Key key(const Op& op) { return {op.stage.value, op.microbatch.value, op.slice}; }
  static double change(OpKind kind) {
    return kind == OpKind::Forward                                           ? 1
           : kind == OpKind::Backward                                        ? -1
           : kind == OpKind::InputGradient || kind == OpKind::WeightGradient ? -0.5
                                                                             : 0;
  }

  const RecomputeRoom& room_;
  const Schedule& order_;
  std::size_t first_;
  std::vector<double> during_;  // most alive while an op runs, with the R's that took room
  std::map<Key, std::size_t> weight_at_;
};

void keep_to(const RecomputeRoom& room, const Schedule& order, std::vector<bool>& marked) {
  if (room.most <= 0) return;
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    RowRoom left(room, order, row);
    for (std::size_t i = order.first_op(row); i < order.first_op({row.value + 1}); ++i) {
      if (marked[i]) marked[i] = left.take(i);
    }
  }
}

}  // namespace

Schedule place_recompute(const Schedule& order, const ComputeTimes& times,
                         const RecomputeRoom& room) {
  std::vector<bool> again;
  again.reserve(order.ops.size());
  for (const Op& op : order.ops) {
    again.push_back(is_backward(op.kind) && times.of(op.stage).recompute.value > 0);
  }
  const Schedule all = with_recompute(order, again);
  const Result<ComputeTiming> timing = time_compute(all, times);
  if (!timing) return order;
  std::vector<bool> wait = that_wait(order, all, timing.value(), times);
  keep_to(room, order, wait);
  return with_recompute(order, wait);
}

}  // namespace rehearse
