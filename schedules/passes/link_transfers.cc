#include "schedules/passes/link_transfers.h"

#include <algorithm>
#include <array>

#include "schedules/stage_index.h"

namespace rehearse {
namespace {

void fill_peers(Schedule& schedule) {
  const std::int32_t stages = schedule.placement.stages();
  for (Op& op : schedule.ops) {
    if (!is_transfer(op.kind) || op.peer || !op.microbatch) continue;
    const bool up = (op.payload == Payload::Gradient) == (op.kind == OpKind::Recv);
    const Stage other{op.stage.value + (up ? 1 : -1)};
    if (op.stage.value < 0 || other.value < 0 || other.value >= stages) continue;
    op.peer = schedule.placement.position(other, op.microbatch);
  }
}

// SENDs are numbered as they stand; each RECV takes the number of the SEND that it is the first to
// name.
void fill_matches(Schedule& schedule, const StageIndex& index) {
  MatchId next{0};
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::int32_t data_class = index.class_of(row);
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      Op& send = schedule.ops[i];
      if (send.kind != OpKind::Send) continue;
      const std::int32_t recv = index.partner(data_class, send);
      if (recv < 0) continue;
      Op& other = schedule.ops[static_cast<std::size_t>(recv)];
      if (index.partner(data_class, other) != static_cast<std::int32_t>(i)) continue;  // doubled
      send.match = other.match = next;
      ++next.value;
    }
  }
}

// The waits of one row, in program order.
class RowWaits {
 public:
  RowWaits(Schedule& schedule, const StageIndex& index, Row row)
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
          need(id, op, index_.arrival(data_class_, work));
          if (!unshards_.empty() && work.stage && work.stage.index() < unshards_.size()) {
            need(id, op, unshards_[work.stage.index()]);
          }
        }
      } else if (op.kind == OpKind::Send) {
        need(id, op, index_.source(data_class_, op));
      } else if (op.kind == OpKind::Unshard && op.stage) {
        unshards_.resize(std::max(unshards_.size(), op.stage.index() + 1), -1);
        unshards_[op.stage.index()] = id;
      }
      std::sort(needed_.begin(), needed_.begin() + count_);
      for (std::int32_t k = 0; k < count_; ++k) {
        schedule_.waits.push_back({needed_[static_cast<std::size_t>(k)]});
      }
      schedule_.wait_begin.push_back(static_cast<std::int32_t>(schedule_.waits.size()));
    }
  }

 private:
  void need(std::int32_t id, const Op& op, std::int32_t other) {
    if (other < begin_ || other >= end_ || other == id) return;  // nobody, or another row's
    const Stream stream = schedule_.ops[static_cast<std::size_t>(other)].stream;
    if (stream == op.stream) return;  // the order says it
    std::int32_t& known =
        seen_[static_cast<std::size_t>(op.stream)][static_cast<std::size_t>(stream)];
    if (other <= known) return;
    known = other;
    needed_[static_cast<std::size_t>(count_++)] = other;
  }

  Schedule& schedule_;
  const StageIndex& index_;
  std::int32_t data_class_, begin_, end_;
  std::array<std::array<std::int32_t, kNumStreams>, kNumStreams> seen_{};
  std::array<std::int32_t, 4> needed_{};  // two halves of a pair, two needs each
  std::int32_t count_ = 0;
  std::vector<std::int32_t> unshards_;  // per stage
};

}  // namespace

void number_groups(Schedule& schedule) {
  std::int32_t groups = 0;
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    std::int32_t before = -1;  // the number that the transfer before it had
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      Op& op = schedule.ops[i];
      const std::int32_t number = is_transfer(op.kind) ? op.instance : -1;
      if (number >= 0) op.instance = number == before ? groups - 1 : groups++;
      before = number;
    }
  }
}

Schedule link_transfers(Schedule schedule) {
  fill_peers(schedule);
  number_groups(schedule);
  const StageIndex index(schedule);
  fill_matches(schedule, index);
  schedule.waits.clear();
  schedule.wait_is_reuse.clear();
  schedule.wait_begin.assign(1, 0);
  schedule.wait_begin.reserve(schedule.ops.size() + 1);
  schedule.waits.reserve(schedule.ops.size());
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    RowWaits(schedule, index, row).fill();
  }
  schedule.wait_is_reuse.assign(schedule.waits.size(), 0);
  return schedule;
}

}  // namespace rehearse
