// SPDX-License-Identifier: Apache-2.0
// What stages on different positions hand to each other: a RECV before the part that takes it, a
// SEND behind the part that made it.
//
// Invariant behind it: every value that a part takes in from another position is written by one
// RECV, and every SEND meets one on the row of the receiver.
#include "schedules/passes/row_draft.h"
#include "schedules/transfers/handover.h"

namespace rehearse {
namespace {

class Placer {
 public:
  explicit Placer(RowDraft& row)
      : row_(row),
        pipeline_(row.s.group(GroupKind::Pipeline)),
        classes_(row.s.rows.size() / static_cast<std::size_t>(row.s.placement.positions)),
        class_(row.row.index() % classes_),
        posted_ahead_(row.plan.runtime.receives_one_ahead && row.plan.overlap_pipeline &&
                      row.plan.virtual_stages > 1) {
    // Megatron's scatter/gather: without sequence parallelism every tensor-parallel rank holds all
    // of an activation, and sends its part.
    parts_ = row.plan.scatters_transfers() ? row.plan.tensor_parallel : 1;
  }

  // `step`: of the row's issued compute ops.
  void take_in(std::size_t number, std::size_t step) {
    gap_ = static_cast<std::int32_t>(step);
    const Part& part = row_.parts[number];
    const std::int32_t at = row_.at(number, Phase::Before);
    if (part.op.kind == OpKind::Forward && part.index == 0) {
      add(OpKind::Recv, Payload::Activation, part.op, at);
    } else if (is_backward(part.op.kind) && part.last()) {
      add(OpKind::Recv, Payload::Gradient, part.op, at);
    }
  }
  // Behind the parts of an issued compute op: the next receive of its direction stands behind it.
  void ended(std::size_t step) {
    const OpKind kind = row_.parts[row_.step_begin[step + 1] - 1].op.kind;
    if (kind == OpKind::Forward) last_forward_ = row_.compute_op(step);
    if (is_backward(kind)) last_backward_ = row_.compute_op(step);
  }
  // `last`: the last part of its op.
  void hand_on(std::size_t number, std::size_t last, std::size_t step) {
    gap_ = static_cast<std::int32_t>(step) + 1;
    const Part& part = row_.parts[number];
    const std::int32_t at = row_.at(last, Phase::Send);
    if (part.op.kind == OpKind::Forward && part.last()) {
      add(OpKind::Send, Payload::Activation, part.op, at);
    } else if (is_backward(part.op.kind) && part.index == 0) {
      add(OpKind::Send, Payload::Gradient, part.op, at);
    }
  }

 private:
  void add(OpKind kind, Payload payload, const Op& about, std::int32_t at) {
    const Stage other = other_stage(kind, payload, about.stage);
    if (other.value < 0 || other.value >= row_.s.placement.stages()) return;
    const Position peer = row_.s.placement.position(other, about.microbatch);
    if (peer == row_.position) return;
    const bool send = kind == OpKind::Send, activation = payload == Payload::Activation;
    const std::size_t number =
        ((activation ? 0 : row_.s.segments.size()) + (send ? about.stage : other).index()) *
            static_cast<std::size_t>(row_.units) +
        row_.unit(about);
    DraftOp& made = row_.add(transfer_op(kind, payload, about.stage, about.microbatch, about.slice),
                             row_.draft.estimates.transfer, at);
    made.tie = static_cast<std::int32_t>(number);
    // One exchange between two compute ops: what is sent keeps the compute stream, and what is
    // received holds back the op that reads it.
    if (send && !row_.plan.overlap_pipeline) made.op.stream = Stream::Compute;
    if (!send && posted_ahead_) made.after = activation ? last_forward_ : last_backward_;
    made.gap = gap_;
    made.op.peer = peer;
    made.op.group = pipeline_;
    made.op.match = {static_cast<std::int32_t>(number * classes_ + class_)};
    row_.draft.carried[made.op.match.index()] = carried(std::min(about.stage.value, other.value));
    const Alive& alive = row_.alive(about);
    const ValueId what = activation ? (send ? alive.x.back() : alive.x.front())
                                    : (send ? alive.d.front() : alive.d.back());
    row_.operand(what, send ? Access::Read : Access::Write);
  }

  // From stage `from` to the next, or back.
  Carried carried(std::int32_t from) const {
    const Layout& layout = row_.draft.layout;
    const std::int64_t element = layout.shape.element;
    return {.elements = layout.handover_bytes(from) / element / parts_,
            .element_bytes = static_cast<std::int32_t>(element)};
  }

  RowDraft& row_;
  GroupId pipeline_;
  std::size_t classes_, class_;  // rows per position, and which of them this is
  // Megatron's interleaved schedule posts one receive ahead of each direction.
  bool posted_ahead_;
  OpId last_forward_, last_backward_;
  std::int32_t gap_ = 0;    // in which the transfer at hand stands
  std::int64_t parts_ = 1;  // that tensor-parallel ranks each send one of
};

}  // namespace

void place_transfers(RowDraft& row) {
  Placer placer(row);
  for (std::size_t step = 0; step + 1 < row.step_begin.size(); ++step) {
    const std::size_t begin = row.step_begin[step], end = row.step_begin[step + 1];
    for (std::size_t part = begin; part < end; ++part) placer.take_in(part, step);
    for (std::size_t part = begin; part < end; ++part) placer.hand_on(part, end - 1, step);
    placer.ended(step);
  }
}

}  // namespace rehearse
