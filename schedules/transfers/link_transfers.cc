// SPDX-License-Identifier: Apache-2.0
#include "schedules/transfers/link_transfers.h"

#include <algorithm>
#include <array>

#include "schedules/ir/stage_index.h"
#include "schedules/transfers/handover.h"

namespace rehearse {
namespace {

Stage other_stage(const Op& transfer) {
  return other_stage(transfer.kind, transfer.payload, transfer.stage);
}

// SENDs that meet a RECV are numbered as they stand; each RECV takes the number of its SEND.
// Doubles meet nobody. Numbers by key of the sender, so that no op is visited out of order.
void fill_matches(Schedule& schedule, const StageIndex& index) {
  std::vector<MatchId> number(2 * index.size());
  const auto slot = [&](const Op& send, std::size_t key) -> MatchId& {
    return number[2 * key + (send.payload == Payload::Gradient ? 1 : 0)];
  };
  MatchId next{0};
  const auto each = [&](OpKind kind, auto visit) {
    for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
      const std::int32_t data_class = index.class_of(row);
      for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
        Op& op = schedule.ops[i];
        if (op.kind != kind || index.partner(data_class, op) < 0) continue;
        if (index.first_of(data_class, op) != static_cast<std::int32_t>(i)) continue;
        visit(op, index.key(data_class, op));
      }
    }
  };
  each(OpKind::Send, [&](Op& send, std::size_t key) {
    send.match = slot(send, key) = next;
    ++next.value;
  });
  const std::size_t stride = index.stage_stride();
  each(OpKind::Recv, [&](Op& recv, std::size_t key) {
    recv.match = slot(recv, other_stage(recv) > recv.stage ? key + stride : key - stride);
  });
}

// The waits of one row, in program order.
class RowWaits {
 public:
  RowWaits(Schedule& schedule, const StageIndex& index, RankClass row)
      : schedule_(schedule),
        index_(index),
        data_class_(index.class_of(row)),
        begin_(static_cast<std::int32_t>(schedule.first_op(row))),
        end_(static_cast<std::int32_t>(schedule.first_op({row.value + 1}))) {
    for (auto& known : seen_) known.fill(-1);
  }

  void fill() {
    for (std::int32_t id = begin_; id < end_; ++id) {
      const Op& op = schedule_.ops[static_cast<std::size_t>(id)];
      count_ = 0;
      if (is_compute(op.kind)) {
        for (const Op& work : work_of(schedule_, op)) {
          need(id, index_.arrival(data_class_, work));
          need_later(id, work);
          if (!unshards_.empty() && work.stage && work.stage.index() < unshards_.size()) {
            need(id, unshards_[work.stage.index()]);
          }
        }
      } else if (op.kind == OpKind::Send) {
        need(id, index_.source(data_class_, op));
      } else if (op.kind == OpKind::Unshard && op.stage && op.stage.value < index_.stages()) {
        unshards_.resize(std::max(unshards_.size(), op.stage.index() + 1), -1);
        unshards_[op.stage.index()] = id;
      }
      add_waits(op.stream);
      schedule_.wait_begin.push_back(static_cast<std::int32_t>(schedule_.waits.size()));
    }
  }

 private:
  void need(std::int32_t id, std::int32_t other) {
    if (other < begin_ || other >= end_ || other == id) return;  // nobody, or another row's
    needed_[static_cast<std::size_t>(count_++)] = other;
  }
  // What the row itself makes for the op, but only afterwards: such a schedule hangs, and the wait
  // shows in which circle.
  void need_later(std::int32_t id, const Op& work) {
    if (!index_.holds(work)) return;
    const StageOps& own = index_.at(index_.key(data_class_, work));
    const std::int32_t before = work.kind == OpKind::WeightGradient ? own.backward_first
                                : work.kind != OpKind::Forward      ? own.forward_first
                                                                    : -1;
    for (const std::int32_t other : {index_.producer(data_class_, work), before}) {
      if (other > id) need(id, other);
    }
  }
  // Ascending, without what the order of the other stream implies. Members of a group end each by
  // itself: one that has ended says nothing of the others.
  void add_waits(Stream own) {
    auto& known = seen_[static_cast<std::size_t>(own)];
    std::sort(needed_.begin(), needed_.begin() + count_);
    const std::size_t first = schedule_.waits.size();
    for (std::int32_t k = count_ - 1; k >= 0; --k) {
      const std::int32_t other = needed_[static_cast<std::size_t>(k)];
      const Op& op = schedule_.ops[static_cast<std::size_t>(other)];
      const bool in_group = is_transfer(op.kind) && op.instance >= 0;
      std::int32_t& latest = known[static_cast<std::size_t>(op.stream)];
      if (other <= latest && !in_group) continue;
      latest = std::max(latest, other);
      schedule_.waits.push_back({other});
    }
    std::reverse(schedule_.waits.begin() + static_cast<std::ptrdiff_t>(first),
                 schedule_.waits.end());
  }

  Schedule& schedule_;
  const StageIndex& index_;
  std::int32_t data_class_, begin_, end_;
  std::array<std::array<std::int32_t, kNumStreams>, kNumStreams> seen_{};
  std::array<std::int32_t, 8>
      needed_{};  // by the present op: two halves of a pair, four needs each
  std::int32_t count_ = 0;
  std::vector<std::int32_t> unshards_;  // per stage
};

}  // namespace

Position other_end(const Schedule& schedule, const Op& transfer) {
  if (!transfer.microbatch || transfer.stage.value < 0) return {};
  const Stage other = other_stage(transfer);
  if (other.value < 0 || other.value >= schedule.placement.stages()) return {};
  return schedule.placement.position(other, transfer.microbatch);
}

namespace {

// Numbers the groups of transfers, so that equal programs have equal hashes, and gives each
// transfer the position of its other end.
void number_and_place(Schedule& schedule) {
  std::int32_t groups = 0;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    std::int32_t before = -1;  // the number that the transfer before it had
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      Op& op = schedule.ops[i];
      const std::int32_t number = is_transfer(op.kind) ? op.instance : -1;
      if (number >= 0) op.instance = number == before ? groups - 1 : groups++;
      before = number;
      if (is_transfer(op.kind) && !op.peer) op.peer = other_end(schedule, op);
    }
  }
}

}  // namespace

Schedule link_transfers(Schedule schedule) {
  number_and_place(schedule);
  const StageIndex index(schedule);
  fill_matches(schedule, index);
  schedule.waits.clear();
  schedule.wait_is_reuse.clear();
  schedule.wait_begin.assign(1, 0);
  schedule.wait_begin.reserve(schedule.ops.size() + 1);
  schedule.waits.reserve(schedule.ops.size());
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    RowWaits(schedule, index, row).fill();
  }
  schedule.wait_is_reuse.assign(schedule.waits.size(), 0);
  return schedule;
}

}  // namespace rehearse
