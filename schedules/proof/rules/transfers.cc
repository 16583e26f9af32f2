// SPDX-License-Identifier: Apache-2.0
// V4: every hand-over between positions has one SEND and one RECV, and the k-th SEND of a channel
// is the k-th RECV: NCCL has no tags, a channel is all that one rank sends another.
#include <algorithm>

#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

// Rows by position and data class, so that a transfer finds the row of its other end.
class RowTable {
 public:
  explicit RowTable(const Facts& facts)
      : positions_(static_cast<std::size_t>(facts.schedule.placement.positions)),
        rows_(positions_ * static_cast<std::size_t>(facts.index.classes()), RankClass{}) {
    for (RankClass row{0}; row.value < facts.schedule.num_rows(); ++row.value) {
      const Position at = facts.schedule.position_of(row);
      if (at.value < 0 || at.index() >= positions_) continue;
      rows_[static_cast<std::size_t>(facts.index.class_of(row)) * positions_ + at.index()] = row;
    }
  }
  RankClass at(Position position, std::int32_t data_class) const {
    return rows_[static_cast<std::size_t>(data_class) * positions_ + position.index()];
  }

 private:
  std::size_t positions_;
  std::vector<RankClass> rows_;
};

Bytes bytes_of(const Schedule& schedule, std::int32_t id) {
  Bytes sum{};
  for (const Operand& operand : schedule.operands_of({id})) {
    sum += schedule.values[operand.value.index()].bytes;
  }
  return sum;
}

// `meets`: by match, what the first op with that number transfers.
void check_end(const Facts& facts, RankClass row, std::int32_t id, const Op& op,
               std::vector<std::int64_t>& meets, Report& report) {
  const Schedule& s = facts.schedule;
  const std::int32_t data_class = facts.index.class_of(row);
  const bool up = (op.payload == Payload::Gradient) == (op.kind == OpKind::Recv);
  const Stage other_stage{op.stage.value + (up ? 1 : -1)};
  if (other_stage.value < 0 || other_stage.value >= s.placement.stages()) {
    return report.add(id, [&] {
      return facts.where(id) + ": there is no stage " + std::to_string(other_stage.value);
    });
  }
  const Position here = s.placement.position(op.stage, op.microbatch);
  const Position there = s.placement.position(other_stage, op.microbatch);
  if (here == there) {
    return report.add(id, [&] {
      return facts.where(id) + ": stage " + std::to_string(other_stage.value) +
             " lies on the same rank, nothing is to be sent";
    });
  }
  if (op.peer != there) {
    return report.add(id, [&] {
      return facts.where(id) + " names rank " + std::to_string(op.peer.value) + ": stage " +
             std::to_string(other_stage.value) + " lies on rank " + std::to_string(there.value);
    });
  }
  const std::int32_t other = facts.index.partner(data_class, op);
  if (other < 0) {
    return report.add(id, [&] {
      return facts.where(id) +
             (op.kind == OpKind::Send ? " is never received: rank " : " is never sent: rank ") +
             std::to_string(there.value) + " has no such " +
             (op.kind == OpKind::Send ? "RECV" : "SEND");
    });
  }
  if (facts.index.first_of(data_class, op) != id) {
    return report.add(id, [&] { return facts.where(id) + " stands twice"; });
  }
  // Who meets is said by the number of the match: both ends must have it, and nobody else.
  const std::size_t key = facts.index.key(data_class, op);
  const std::size_t stride = facts.index.stage_stride();
  const std::size_t maker = op.kind == OpKind::Send ? key : (up ? key + stride : key - stride);
  const auto identity =
      static_cast<std::int64_t>(2 * maker + (op.payload == Payload::Gradient ? 1 : 0));
  if (op.match && meets.size() <= op.match.index()) {
    meets.resize(std::max(op.match.index() + 1, 2 * meets.size()), -1);
  }
  if (op.match && meets[op.match.index()] < 0) meets[op.match.index()] = identity;
  if (!op.match || meets[op.match.index()] != identity) {
    return report.add(id, [&] {
      return facts.where(id) + " and " + facts.where(other) + " have different matches";
    });
  }
  if (op.kind == OpKind::Send && facts.has_values() && bytes_of(s, id) != bytes_of(s, other)) {
    report.add(id, [&] {
      return facts.where(id) + " sends " + std::to_string(bytes_of(s, id).value) + " bytes, " +
             facts.where(other) + " expects " + std::to_string(bytes_of(s, other).value);
    });
  }
}

// What a compute op takes over from another position must be brought by a transfer.
void check_input(const Facts& facts, RankClass row, std::int32_t id, const Op& work,
                 Report& report) {
  const bool forward = work.kind == OpKind::Forward;
  if (!facts.index.holds(work) || (!forward && !is_backward(work.kind))) return;
  const Stage from{work.stage.value + (forward ? -1 : 1)};
  if (from.value < 0 || from.value >= facts.schedule.placement.stages()) return;
  const Placement& placement = facts.schedule.placement;
  if (placement.position(from, work.microbatch) ==
      placement.position(work.stage, work.microbatch)) {
    return;
  }
  const std::int32_t data_class = facts.index.class_of(row);
  const std::size_t key = facts.index.key(data_class, work);
  const StageOps& own = facts.index.at(key);
  if (id != (forward ? own.forward_first : own.backward_first)) return;  // a later part
  if (facts.index.arrival(data_class, work) >= 0) return;
  const std::size_t stride = facts.index.stage_stride();
  const StageOps& maker = facts.index.at(forward ? key - stride : key + stride);
  if ((forward ? maker.send_activation : maker.send_gradient) >= 0) return;  // named by its SEND
  report.add(id, [&] {
    Op send{.kind = OpKind::Send,
            .payload = forward ? Payload::Activation : Payload::Gradient,
            .slice = work.slice,
            .stage = from,
            .microbatch = work.microbatch};
    Op recv = send;
    recv.kind = OpKind::Recv;
    recv.stage = work.stage;
    return "nothing brings " + facts.where(id) + " its input: " + to_text(send) + " and " +
           to_text(recv) + " are missing";
  });
}

// SENDs in program order; per destination the RECVs must ascend. Channels of one payload each
// (peerdir, fb) are told apart.
class Channels {
 public:
  explicit Channels(const Facts& facts)
      : facts_(facts),
        rows_(facts),
        last_(2 * static_cast<std::size_t>(facts.schedule.num_rows())),
        by_payload_(facts.options.streams == StreamModel::PeerDirection ||
                    facts.options.streams == StreamModel::Payload) {}

  void begin_row() {
    for (const std::size_t channel : used_) last_[channel] = {};
    used_.clear();
  }
  void send(RankClass row, std::int32_t id, const Op& op, Report& report) {
    const std::int32_t data_class = facts_.index.class_of(row);
    const std::int32_t recv = facts_.index.partner(data_class, op);
    if (!op.peer || recv < 0) return;
    const RankClass to = rows_.at(op.peer, data_class);
    if (!to) return;
    const bool second = by_payload_ && op.payload == Payload::Gradient;
    const std::size_t channel = 2 * to.index() + (second ? 1 : 0);
    Last& last = last_[channel];
    if (recv < last.recv) {
      report.add(id, [&] {
        return "channel " + row_name(facts_.schedule, row) + " -> " +
               row_name(facts_.schedule, to) + ": " + to_text(facts_.op(last.send)) +
               " is sent before " + to_text(op) +
               ", but received after it: list both in the same order on both ranks";
      });
      return;
    }
    if (last.send < 0) used_.push_back(channel);
    last = {id, recv};
  }

 private:
  struct Last {
    std::int32_t send = -1, recv = -1;
  };
  const Facts& facts_;
  RowTable rows_;
  std::vector<Last> last_;  // by channel of the present row
  std::vector<std::size_t> used_;
  bool by_payload_;
};

}  // namespace

bool check_transfers(const Facts& facts, Report& report) {
  if (!facts.full()) return false;
  Channels channels(facts);
  std::vector<std::int64_t> meets;
  RankClass now{};
  facts.each_op([&](RankClass row, std::int32_t id, const Op& op) {
    if (row != now) channels.begin_row();
    now = row;
    if (is_transfer(op.kind)) {
      if (!facts.index.holds(op)) return;
      check_end(facts, row, id, op, meets, report);
      if (op.kind == OpKind::Send) channels.send(row, id, op, report);
    } else if (is_compute(op.kind)) {
      for (const Op& work : work_of(facts.schedule, op)) {
        check_input(facts, row, id, work, report);
      }
    }
  });
  return true;
}

bool check_deadlock(const Facts& facts, Report& report) {
  report.deadlock() = prove_no_deadlock_untimed(facts.schedule, facts.options.streams);
  const DeadlockProof& proof = report.deadlock();
  if (proof.complete) return true;
  if (!proof.cycle.empty()) {
    report.add(proof.cycle.front().op.value, [&] {
      return "it hangs with " + std::string(info(facts.options.streams).what) + ": " +
             cycle_in_one_line(facts.schedule, proof);
    });
  }
  for (const OpId lonely : proof.lonely) {
    report.add(lonely.value,
               [&] { return facts.where(lonely.value) + " waits for ever: it has no partner"; });
  }
  return true;
}

}  // namespace rehearse
