// SPDX-License-Identifier: Apache-2.0
// What a compute op of a row reads, writes and keeps, and the transfers beside it.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {

void RowEmitter::transfer(OpKind kind, Payload payload, Stage issuing, Stage sender,
                          const Op& about, ValueId what) {
  const bool gradient = payload == Payload::Gradient;
  const std::size_t at =
      (gradient ? slots_ : 0) + sender.index() * static_cast<std::size_t>(m_) + unit(about);
  const Stage other = kind == OpKind::Send
                          ? (gradient ? Stage{sender.value - 1} : Stage{sender.value + 1})
                          : sender;
  DraftOp& made = d_.add(d_.estimates.transfer);
  made.tie = static_cast<std::int32_t>(at);
  Op& op = made.op;
  op.kind = kind;
  op.stream = Stream::P2p;
  op.payload = payload;
  op.slice = about.slice;
  op.stage = issuing;
  op.microbatch = about.microbatch;
  op.peer = s_.placement.position(other, about.microbatch);
  op.group = pipeline_;
  op.match = transfers_[at * classes_ + replica_];
  d_.carried[op.match.index()] = {.elements = activation_ / shape_.element / sent_once_per_,
                                  .element_bytes = static_cast<std::int32_t>(shape_.element)};
  d_.operand(what, kind == OpKind::Send ? Access::Read : Access::Write);
}

void RowEmitter::receive_inputs(const Part& part) {
  const Op& op = part.op;
  const std::int64_t bytes = activation_;
  if (op.kind == OpKind::Forward && part.index == 0 && !first_stage(op.stage)) {
    const Stage before{op.stage.value - 1};
    if (remote(before, op.stage, op.microbatch)) {
      alive(op).x[0] = value(ValueKind::Activation, bytes, before, op);
      transfer(OpKind::Recv, Payload::Activation, op.stage, before, op, alive(op).x[0]);
    } else {
      alive(op).x[0] = alive_[slot(before, op)].x.back();
    }
  }
  if (is_backward(op.kind) && covers_end(part) && !last_stage(op.stage)) {
    const Stage next{op.stage.value + 1};
    if (remote(next, op.stage, op.microbatch)) {
      alive(op).d.back() = value(ValueKind::ActivationGradient, bytes, next, op);
      transfer(OpKind::Recv, Payload::Gradient, op.stage, next, op, alive(op).d.back());
    } else {
      alive(op).d.back() = alive_[slot(next, op)].d[0];
    }
  }
}

void RowEmitter::send_outputs(const Part& part) {
  const Op& op = part.op;
  if (op.kind == OpKind::Forward && covers_end(part) && !last_stage(op.stage) &&
      remote(op.stage, {op.stage.value + 1}, op.microbatch)) {
    transfer(OpKind::Send, Payload::Activation, op.stage, op.stage, op, alive(op).x.back());
  }
  if (is_backward(op.kind) && part.index == 0 && !first_stage(op.stage) &&
      remote(op.stage, {op.stage.value - 1}, op.microbatch)) {
    transfer(OpKind::Send, Payload::Gradient, op.stage, op.stage, op, alive(op).d[0]);
  }
}

void RowEmitter::parameters(const Part& part) {
  for (const BucketId id : work(part).reads) d_.operand(parameter_[id.index()], Access::Read);
}

// Gradients that exist are updated, new ones are listed in fresh_ (written, after the outputs).
void RowEmitter::gradients(const Part& part) {
  fresh_.clear();
  for (const auto& [about, use] : work(part).adds) {
    Accumulator& to = accumulator(about, use);
    if (to.whole) {
      d_.operand(to.whole, Access::Update);
      continue;
    }
    to.whole = bucket_value(ValueKind::Gradient, about, 4 * bucket(about).padded, false);
    Value& made = s_.values[to.whole.index()];
    if (reduce_each_microbatch()) made.microbatch = part.op.microbatch;
    // Both uses of a tied table on one row: the head's is kept apart until they are added.
    if (use == 1 && both_ends_) made.instance = 1;
    fresh_.push_back(to.whole);
  }
}

// A slice's attention reads the keys and values that the slices before it have saved; its backward
// also adds to the gradients of these. The last slice's backward, the first to run, makes these for
// all; a weight gradient needs neither.
void RowEmitter::earlier_slices(const Part& part) {
  const Op& op = part.op;
  if (op.slice < 0 || !work(part).has_layers || !d_.plan.runtime.own_executor) return;
  if (op.kind == OpKind::WeightGradient) return;
  Op other = op;
  for (other.slice = 0; other.slice < op.slice; ++other.slice) {
    d_.operand(alive(other).slab_input[part.index], Access::Read);
  }
  if (!is_backward(op.kind)) return;
  const std::int64_t bytes = work(part).sizes.key_value_gradient;
  for (other.slice = 0; other.slice <= op.slice; ++other.slice) {
    ValueId& dkv = alive(other).dkv[part.index];
    const bool made = static_cast<bool>(dkv);
    if (!made) {
      dkv = value(ValueKind::KeyValueGradient, bytes, other);
      s_.values[dkv.index()].segment_begin = op.segment_begin;
      s_.values[dkv.index()].segment_end = op.segment_end;
    }
    d_.operand(dkv, made ? Access::Update : Access::Write);
  }
}

void RowEmitter::forward_operands(const Part& part) {
  const Op& op = part.op;
  Alive& state = alive(op);
  const bool loss = covers_end(part) && last_stage(op.stage);
  if (part.index == 0 && first_stage(op.stage)) {
    d_.operand(tokens_, Access::Read);
  } else {
    d_.operand(state.x[part.index], Access::Read);
  }
  if (loss) d_.operand(targets_, Access::Read);
  earlier_slices(part);
  parameters(part);
  gradients(part);
  const BodySizes& bytes = work(part).sizes;
  if (loss && loss_) d_.operand(loss_, Access::Update);
  if (!loss) {
    state.x[part.index + 1] = value(ValueKind::Activation, activation_, op);
    if (!covers_end(part)) {
      s_.values[state.x[part.index + 1].index()].segment_begin =
          static_cast<std::int16_t>(end_of(part));
    }
    d_.operand(state.x[part.index + 1], Access::Write);
  }
  const auto slab = [&](ValueKind kind, std::int64_t size) {
    if (size == 0) return ValueId{};
    const ValueId id = value(kind, size, op);
    s_.values[id.index()].segment_begin = op.segment_begin;
    s_.values[id.index()].segment_end = op.segment_end;
    d_.operand(id, Access::Write);
    return id;
  };
  state.slab_input[part.index] = slab(ValueKind::SavedForInput, bytes.saved_for_input);
  state.slab_weight[part.index] = slab(ValueKind::SavedForWeight, bytes.saved_for_weight);
  if (bytes.workspace > 0) {
    d_.operand(value(ValueKind::Workspace, bytes.workspace, op), Access::Workspace);
  }
  for (const ValueId id : fresh_) d_.operand(id, Access::Write);
  if (loss && !loss_) {
    loss_ = value(ValueKind::Metrics, 4);
    d_.operand(loss_, Access::Write);
  }
}

void RowEmitter::backward_operands(const Part& part) {
  const Op& op = part.op;
  Alive& state = alive(op);
  const bool weight = op.kind == OpKind::WeightGradient, input = op.kind == OpKind::InputGradient;
  const bool embedding = part.index == 0 && first_stage(op.stage);
  const auto read = [&](ValueId id) {
    if (id) d_.operand(id, Access::Read);
  };
  if (!(covers_end(part) && last_stage(op.stage))) read(state.d[part.index + 1]);
  if (embedding) {
    if (!input) d_.operand(tokens_, Access::Read);
  } else if (!weight) {
    read(state.x[part.index]);
  }
  if (!weight) read(state.slab_input[part.index]);
  // The attention output may lie in the slab for W and is read by I too.
  read(state.slab_weight[part.index]);
  if (weight) read(state.left[part.index]);
  earlier_slices(part);
  parameters(part);
  gradients(part);
  const BodySizes& bytes = work(part).sizes;
  if (!weight && !embedding) {
    state.d[part.index] = value(ValueKind::ActivationGradient, activation_, op);
    if (part.index > 0) {
      s_.values[state.d[part.index].index()].segment_begin =
          static_cast<std::int16_t>(begin_of(part));
    }
    d_.operand(state.d[part.index], Access::Write);
  }
  if (input && bytes.left_for_weight > 0) {
    state.left[part.index] = value(ValueKind::LeftForWeight, bytes.left_for_weight, op);
    s_.values[state.left[part.index].index()].segment_begin = op.segment_begin;
    s_.values[state.left[part.index].index()].segment_end = op.segment_end;
    d_.operand(state.left[part.index], Access::Write);
  }
  if (bytes.workspace > 0) {
    d_.operand(value(ValueKind::Workspace, bytes.workspace, op), Access::Workspace);
  }
  for (const ValueId id : fresh_) d_.operand(id, Access::Write);
}

}  // namespace rehearse
