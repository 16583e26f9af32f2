// SPDX-License-Identifier: Apache-2.0
// The compute ops of a row: what each reads, writes and keeps, as if its inputs were there, its
// parameters whole and all memory on the device; and the tokens and targets that they begin with.
//
// Invariant behind it: one op per part or OVERLAP, and what a part keeps is what the parts of its
// backward read.
#include "schedules/passes/parameters/summed_gradients.h"
#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

class Computer {
 public:
  explicit Computer(RowDraft& row) : row_(row), gradients_(row) {}

  void run() {
    divide_values();
    if (row_.through_root.empty()) fetch_inputs();
    row_.first_compute = row_.ops.size();
    for (std::size_t step = 0; step + 1 < row_.step_begin.size(); ++step) {
      compute(row_.step_begin[step], row_.step_begin[step + 1]);
    }
  }

 private:
  // What may be alive of every slot, in one array.
  void divide_values() {
    const bool placed = row_.draft.placed.any();
    std::size_t count = 0;
    for (const auto& cuts : row_.cuts) {
      count += cuts.empty() ? 0 : (placed ? 8 : 6) * cuts.size() + 2;
    }
    row_.alive_values.assign(count, {});
    row_.alive_at.assign(row_.slots, {});
    ValueId* next = row_.alive_values.data();
    for (std::size_t k = 0; k < row_.slots; ++k) {
      const std::size_t parts = row_.cuts[k].size();
      if (parts == 0) continue;
      const std::size_t remade = placed ? parts : 0;
      const auto take = [&](std::size_t n) { return std::span{std::exchange(next, next + n), n}; };
      row_.alive_at[k] = {take(parts + 1), take(parts + 1), take(parts),  take(parts),
                          take(parts),     take(parts),     take(remade), take(remade)};
    }
  }

  void fetch_inputs() {
    // The whole step's at once, though the order may be a shorter one.
    const std::int64_t slices = row_.units / row_.draft.order.microbatches;
    const std::int64_t bytes =
        4 * row_.plan.microbatches() * slices * row_.draft.layout.shape.batch_tokens();
    if (row_.holds({0})) tokens_ = row_.fetch_input(0, bytes);
    if (row_.holds({row_.s.placement.stages() - 1})) targets_ = row_.fetch_input(1, bytes);
  }

  // One issued op: a part, or an OVERLAP pair of two whole ops.
  void compute(std::size_t begin, std::size_t end) {
    const std::span<const Part> parts = std::span{row_.parts}.subspan(begin, end - begin);
    std::int64_t duration = 0;
    for (const Part& part : parts) {
      take_inputs(part);
      duration += row_.work(part).duration;
    }
    Op& op = row_.add(parts.front().op, duration, row_.at(end - 1, Phase::Compute)).op;
    if (parts.size() == 2) {
      std::vector<Op>& children = row_.draft.schedule.children;
      op = {.kind = OpKind::Overlap,
            .stage = op.stage,
            .microbatch = op.microbatch,
            .child = static_cast<std::int32_t>(children.size())};
      for (const Part& part : parts) children.push_back(part.op);
    }
    op.stream = Stream::Compute;
    for (const Part& part : parts) {
      part.op.kind == OpKind::Forward     ? forward(part)
      : part.op.kind == OpKind::Recompute ? recompute(part)
                                          : backward(part);
    }
    for (const Part& part : parts) gradients_.finish(part, end - 1);
  }

  // What comes from another stage: of this row the value itself, else a new one.
  void take_inputs(const Part& part) {
    const Op& op = part.op;
    if (op.kind == OpKind::Forward && part.index == 0 && !row_.first_stage(op.stage)) {
      const Stage before{op.stage.value - 1};
      row_.alive(op).x[0] = row_.remote(before, op.microbatch)
                                ? arriving(ValueKind::Activation, before, op)
                                : row_.alive_at[row_.slot(before, op)].x.back();
    }
    if (is_backward(op.kind) && part.last() && !row_.last_stage(op.stage)) {
      const Stage next{op.stage.value + 1};
      row_.alive(op).d.back() = row_.remote(next, op.microbatch)
                                    ? arriving(ValueKind::ActivationGradient, next, op)
                                    : row_.alive_at[row_.slot(next, op)].d[0];
    }
  }
  ValueId arriving(ValueKind kind, Stage from, const Op& op) {
    const std::int32_t before = std::min(from.value, op.stage.value);
    return row_.value(kind, row_.draft.layout.handover_bytes(before), from, op);
  }

  void forward(const Part& part) {
    const Op& op = part.op;
    Alive& state = row_.alive(op);
    const bool model_ends = part.last() && row_.last_stage(op.stage);
    const bool loss = model_ends && row_.through_root.empty();
    const bool tokens = part.index == 0 && row_.first_stage(op.stage);
    row_.operand(tokens ? tokens_of(op) : state.x[part.index], Access::Read);
    if (loss) row_.operand(targets_, Access::Read);
    if (op.slice >= 0) earlier_slices(part);
    parameters(part);
    gradients_.add(part);
    const BodySizes& bytes = row_.work(part).sizes;
    if (loss && row_.loss) row_.operand(row_.loss, Access::Update);
    if (model_ends && !loss) {
      row_.operand(row_.through_root[op.microbatch.index()].outputs, Access::Write);
    } else if (!loss) {
      const Layout& layout = row_.draft.layout;
      const ValueId out = row_.value(
          ValueKind::Activation,
          part.last() ? layout.handover_bytes(op.stage.value) : layout.activation_bytes(), op);
      state.x[part.index + 1] = out;
      if (!part.last()) {
        row_.of(out).segment_begin = static_cast<std::int16_t>(row_.end_of(part));
      }
      row_.operand(out, Access::Write);
    }
    state.slab_input[part.index] = kept(ValueKind::SavedForDgrad, bytes.saved_for_dgrad, op);
    state.slab_weight[part.index] = kept(ValueKind::SavedForWgrad, bytes.saved_for_wgrad, op);
    work_in(bytes.workspace, op);
    if (loss && !row_.loss) {
      row_.loss = row_.value(ValueKind::Metrics, 4);
      row_.operand(row_.loss, Access::Write);
    }
  }

  // What the backwards behind it read is alive from here on.
  void recompute(const Part& part) {
    const Op& op = part.op;
    Alive& state = row_.alive(op);
    const BodySizes& bytes = row_.work(part).sizes;
    const bool slabs = row_.plan.runtime.performer().keeps_slabs;
    const bool none =
        slabs ? bytes.remade_for_dgrad + bytes.remade_for_wgrad == 0 : !row_.work(part).has_layers;
    if (none) return;  // the model's ends
    for (const ValueId id : {state.x[part.index], state.slab_input[part.index]}) {
      if (id) row_.operand(id, Access::Read);
    }
    if (op.slice >= 0) earlier_slices(part);
    parameters(part);
    gradients_.add(part);
    state.remade_input[part.index] = kept(ValueKind::RemadeForDgrad, bytes.remade_for_dgrad, op);
    state.remade_weight[part.index] = kept(ValueKind::RemadeForWgrad, bytes.remade_for_wgrad, op);
    work_in(bytes.workspace, op);
  }

  void backward(const Part& part) {
    const Op& op = part.op;
    Alive& state = row_.alive(op);
    const bool weight = op.kind == OpKind::WeightGradient, input = op.kind == OpKind::InputGradient;
    const bool embedding = part.index == 0 && row_.first_stage(op.stage);
    const auto read = [&](ValueId id) {
      if (id) row_.operand(id, Access::Read);
    };
    if (!(part.last() && row_.last_stage(op.stage))) {
      read(state.d[part.index + 1]);
    } else if (!row_.through_root.empty()) {
      read(row_.through_root[op.microbatch.index()].gradient);
    }
    if (embedding) {
      if (!input) row_.operand(tokens_of(op), Access::Read);
    } else if (!weight) {
      read(state.x[part.index]);
    }
    if (!weight) read(state.slab_input[part.index]);
    // The attention output may lie in the slab for W and is read by I too.
    read(state.slab_weight[part.index]);
    if (weight) read(state.left[part.index]);
    if (!state.remade_input.empty()) {
      if (!weight) read(state.remade_input[part.index]);
      read(state.remade_weight[part.index]);
    }
    if (op.slice >= 0) earlier_slices(part);
    parameters(part);
    gradients_.add(part);
    const BodySizes& bytes = row_.work(part).sizes;
    if (!weight && !embedding) {
      const Layout& layout = row_.draft.layout;
      const ValueId out = row_.value(
          ValueKind::ActivationGradient,
          part.index == 0 ? layout.handover_bytes(op.stage.value - 1) : layout.activation_bytes(),
          op);
      state.d[part.index] = out;
      if (part.index > 0) {
        row_.of(out).segment_begin = static_cast<std::int16_t>(row_.begin_of(part));
      }
      row_.operand(out, Access::Write);
    }
    if (input) state.left[part.index] = kept(ValueKind::LeftForWgrad, bytes.left_for_wgrad, op);
    work_in(bytes.workspace, op);
  }

  // A slice's attention reads the keys and values that the slices before it have saved; its
  // backward also adds to the gradients of these. The last slice's backward, the first to run,
  // makes these for all; a weight gradient needs neither.
  void earlier_slices(const Part& part) {
    const Op& op = part.op;
    if (!row_.work(part).has_layers || !row_.plan.runtime.performer().keeps_slabs) return;
    if (op.kind == OpKind::WeightGradient) return;
    Op other = op;
    for (other.slice = 0; other.slice < op.slice; ++other.slice) {
      row_.operand(row_.alive(other).slab_input[part.index], Access::Read);
    }
    if (!is_backward(op.kind)) return;
    const std::int64_t bytes = row_.work(part).sizes.key_value_gradient;
    for (other.slice = 0; other.slice <= op.slice; ++other.slice) {
      ValueId& dkv = row_.alive(other).dkv[part.index];
      const bool made = static_cast<bool>(dkv);
      if (!made) dkv = part_value(ValueKind::KeyValueGradient, bytes, other);
      row_.operand(dkv, made ? Access::Update : Access::Write);
    }
  }

  void parameters(const Part& part) {
    for (const BucketId id : row_.work(part).reads) {
      row_.operand(row_.parameter_of(id, part.op.microbatch), Access::Read);
    }
  }
  ValueId tokens_of(const Op& op) const {
    return row_.through_root.empty() ? tokens_ : row_.through_root[op.microbatch.index()].tokens;
  }

  // A value of the op's part.
  ValueId part_value(ValueKind kind, std::int64_t bytes, const Op& op) {
    const ValueId id = row_.value(kind, bytes, op);
    row_.of(id).segment_begin = op.segment_begin;
    row_.of(id).segment_end = op.segment_end;
    return id;
  }
  ValueId kept(ValueKind kind, std::int64_t bytes, const Op& op) {
    if (bytes == 0) return {};
    const ValueId id = part_value(kind, bytes, op);
    row_.operand(id, Access::Write);
    return id;
  }
  // The last outputs.
  void work_in(std::int64_t workspace, const Op& op) {
    if (workspace > 0) {
      row_.operand(row_.value(ValueKind::Workspace, workspace, op), Access::Workspace);
    }
    gradients_.write_new();
  }

  RowDraft& row_;
  SummedGradients gradients_;
  ValueId tokens_, targets_;
};

}  // namespace

void compute_parts(RowDraft& row) {
  Computer(row).run();
}

}  // namespace rehearse
