// SPDX-License-Identifier: Apache-2.0
#include "schedules/timing/compute_timing.h"

#include <algorithm>
#include <string>

#include "schedules/ir/text.h"

namespace rehearse {
namespace {

constexpr std::int64_t kNotYet = -1;

// Ends of forwards, and of backwards as far as the previous stage waits for them (B or I), and W's,
// by (stage, micro-batch, slice). One row at most waits for each: its consumer is one op.
class Clock {
 public:
  Clock(const Schedule& schedule, const ComputeTimes& times)
      : schedule_(schedule),
        times_(times),
        slices_(std::max(1, schedule.slices)),
        keys_(static_cast<std::size_t>(schedule.placement.stages()) *
              static_cast<std::size_t>(schedule.microbatches) * static_cast<std::size_t>(slices_)),
        forward_(keys_, kNotYet),
        backward_(keys_, kNotYet),
        forward_waiter_(keys_, -1),
        backward_waiter_(keys_, -1),
        free_at_(static_cast<std::size_t>(schedule.num_rows()), 0) {
    timing_.start.resize(schedule.ops.size());
    timing_.end.resize(schedule.ops.size());
    next_.assign(schedule.row_begin.begin(), schedule.row_begin.end() - 1);
    for (const Op& op : schedule.ops) {
      if (!is_exchange(op)) continue;
      meetings_.resize(std::max(meetings_.size(), op.match.index() + 1));
      ++meetings_[op.match.index()].absent;
    }
  }

  Result<ComputeTiming> run() {
    std::vector<std::int32_t>& ready = ready_rows_;
    for (std::int32_t row = schedule_.num_rows() - 1; row >= 0; --row) ready.push_back(row);
    while (!ready.empty()) {
      const std::int32_t row = ready.back();
      ready.pop_back();
      if (!run_row(row)) return Error{std::move(error_)};
    }
    for (std::int32_t row = 0; row < schedule_.num_rows(); ++row) {
      if (next(row) < end_of(row)) return stuck();
    }
    return std::move(timing_);
  }

 private:
  std::int32_t& next(std::int32_t row) { return next_[static_cast<std::size_t>(row)]; }
  std::int32_t end_of(std::int32_t row) const {
    return schedule_.row_begin[static_cast<std::size_t>(row) + 1];
  }

  // Runs ops of the row until one has to wait; false after setting error_.
  bool run_row(std::int32_t row) {
    const Position here = schedule_.position_of({row});
    std::int64_t& clock = free_at_[static_cast<std::size_t>(row)];
    for (std::int32_t& id = next(row); id < end_of(row); ++id) {
      const auto at = static_cast<std::size_t>(id);
      const Op& op = schedule_.ops[at];
      std::int64_t start = clock;
      if (is_exchange(op)) {
        if (!all_there(op, row, clock)) return true;
        timing_.start[at] = timing_.end[at] = {clock};
        continue;
      }
      if (op.kind == OpKind::Overlap) {
        const auto child = static_cast<std::size_t>(op.child);
        for (const Op* half : {&schedule_.children[child], &schedule_.children[child + 1]}) {
          if (!known(*half)) return false;
          if (!inputs_there(*half, here, row, start)) return true;
        }
        const std::int64_t end = start + duration_of(schedule_, placed_, op, times_).value;
        finish(schedule_.children[child], end);
        finish(schedule_.children[child + 1], end);
        clock = end;
      } else {
        if (!known(op)) return false;
        if (!inputs_there(op, here, row, start)) return true;
        clock = start + duration_of(schedule_, placed_, op, times_).value;
        finish(op, clock);
      }
      timing_.start[at] = {start};
      timing_.end[at] = {clock};
      timing_.makespan = std::max(timing_.makespan, timing_.end[at]);
    }
    return true;
  }

  bool is_exchange(const Op& op) const { return op.match && schedule_.is_on(op, GroupKind::Other); }

  // Whether the row, which stands at the exchange, may go on: with the last of its members, which
  // wakes the others. Then `clock` is that time.
  bool all_there(const Op& op, std::int32_t row, std::int64_t& clock) {
    Meeting& meeting = meetings_[op.match.index()];
    if (meeting.absent > 0) {
      meeting.time = std::max(meeting.time, clock);
      if (--meeting.absent > 0) {
        meeting.waiting.push_back(row);
        return false;
      }
      ready_rows_.insert(ready_rows_.end(), meeting.waiting.begin(), meeting.waiting.end());
    }
    clock = meeting.time;
    return true;
  }

  bool known(const Op& op) {
    if (op.stage.value >= 0 && op.stage.value < schedule_.placement.stages() &&
        op.microbatch.value >= 0 && op.microbatch.value < schedule_.microbatches &&
        op.slice < slices_ && is_compute(op.kind)) {
      return true;
    }
    error_ = to_text(op) + ": not a compute op of this schedule's stages and micro-batches";
    return false;
  }

  std::size_t key(Stage stage, const Op& op) const {
    const auto m = static_cast<std::size_t>(schedule_.microbatches);
    return (stage.index() * m + op.microbatch.index()) * static_cast<std::size_t>(slices_) +
           static_cast<std::size_t>(std::max<std::int8_t>(op.slice, 0));
  }

  // Raises `start` to when `ends[key]` is here, or notes that this row waits for it.
  bool there(std::vector<std::int64_t>& ends, std::vector<std::int32_t>& waiters, std::size_t at,
             std::int64_t delay, std::int32_t row, std::int64_t& start) {
    if (ends[at] == kNotYet) {
      waiters[at] = row;
      return false;
    }
    start = std::max(start, ends[at] + delay);
    return true;
  }

  bool inputs_there(const Op& op, Position here, std::int32_t row, std::int64_t& start) {
    const auto delay = [&](Stage producer) {
      const bool remote = schedule_.placement.position(producer, op.microbatch) != here;
      return remote ? times_.transfer.value : 0;
    };
    const std::size_t own = key(op.stage, op);
    switch (op.kind) {
      case OpKind::Forward: {
        if (op.stage.value == 0) return true;
        const Stage before{op.stage.value - 1};
        return there(forward_, forward_waiter_, key(before, op), delay(before), row, start);
      }
      case OpKind::Backward:
      case OpKind::InputGradient: {
        if (!there(forward_, forward_waiter_, own, 0, row, start)) return false;
        const Stage after{op.stage.value + 1};
        if (after.value == schedule_.placement.stages()) return true;
        return there(backward_, backward_waiter_, key(after, op), delay(after), row, start);
      }
      case OpKind::WeightGradient:
        return there(backward_, backward_waiter_, own, 0, row, start);
      case OpKind::Recompute:
        return there(forward_, forward_waiter_, own, 0, row, start);
      default:
        return true;
    }
  }

  void finish(const Op& op, std::int64_t end) {
    if (op.kind == OpKind::Forward) {
      wake(forward_, forward_waiter_, key(op.stage, op), end);
    } else if (is_backward(op.kind)) {
      wake(backward_, backward_waiter_, key(op.stage, op), end);
    }
  }
  void wake(std::vector<std::int64_t>& ends, std::vector<std::int32_t>& waiters, std::size_t at,
            std::int64_t end) {
    ends[at] = end;
    if (waiters[at] >= 0) ready_rows_.push_back(waiters[at]);
    waiters[at] = -1;
  }

  Error stuck() {
    std::string message = "the order waits for itself:";
    for (std::int32_t row = 0; row < schedule_.num_rows(); ++row) {
      if (next(row) == end_of(row)) continue;
      message += " position " + std::to_string(schedule_.position_of({row}).value) + " at " +
                 to_text(schedule_, OpId{next(row)}) + ";";
    }
    message.pop_back();
    return {std::move(message)};
  }

  const Schedule& schedule_;
  const PlacedRecompute placed_{schedule_};
  const ComputeTimes& times_;
  std::int32_t slices_;
  std::size_t keys_;
  std::vector<std::int64_t> forward_, backward_;
  std::vector<std::int32_t> forward_waiter_, backward_waiter_;
  struct Meeting {
    std::int32_t absent = 0;  // members that are not yet there
    std::int64_t time = 0;
    std::vector<std::int32_t> waiting;  // rows
  };
  std::vector<Meeting> meetings_;  // by match, of exchanges
  std::vector<std::int64_t> free_at_;
  std::vector<std::int32_t> next_, ready_rows_;
  ComputeTiming timing_;
  std::string error_;
};

}  // namespace

ComputeTimes divide(const PositionTimes& position, std::int32_t chunks, std::int32_t slices) {
  const std::int64_t parts = static_cast<std::int64_t>(chunks) * slices;
  StageTimes stage{.forward = {position.forward.value / parts},
                   .input_gradient = {position.input_gradient.value / parts},
                   .weight_gradient = {position.weight_gradient.value / parts}};
  stage.backward = stage.input_gradient + stage.weight_gradient;
  ComputeTimes times{.stages = {stage}, .transfer = position.transfer};
  if (position.pair.value >= 0) times.pair = {position.pair.value / parts};
  return times;
}

Nanoseconds duration_of(const Schedule& schedule, const PlacedRecompute& placed, const Op& op,
                        const ComputeTimes& times) {
  const StageTimes& stage = times.of(op.stage);
  const auto rest = [&](Nanoseconds whole) {
    return placed.of(op) ? whole - stage.recompute : whole;
  };
  switch (op.kind) {
    case OpKind::Forward:
      return stage.forward;
    case OpKind::Recompute:
      return stage.recompute.value > 0 ? stage.recompute : stage.forward;
    case OpKind::Backward:
      return rest(stage.backward);
    case OpKind::InputGradient:
      return rest(stage.input_gradient);
    case OpKind::WeightGradient:
      return stage.weight_gradient;
    case OpKind::Overlap: {
      if (times.pair.value >= 0) return times.pair;
      const auto child = static_cast<std::size_t>(op.child);
      return duration_of(schedule, placed, schedule.children[child], times) +
             duration_of(schedule, placed, schedule.children[child + 1], times);
    }
    default:
      return {0};
  }
}

Result<ComputeTiming> time_compute(const Schedule& schedule, const ComputeTimes& times) {
  return Clock(schedule, times).run();
}

}  // namespace rehearse
