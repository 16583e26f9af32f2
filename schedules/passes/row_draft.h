// SPDX-License-Identifier: Apache-2.0
// One row of a schedule while the passes of lower.h lower it.
//
// A pass adds ops to the row and operands to its own ops; it never moves an op. Every op says where
// in the row's program it stands (`at`), so passes need not run in the program's order: `weave`
// finds it. Values are numbered as the passes make them until then.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "schedules/passes/draft.h"

namespace rehearse {

// When the gradients of the loss are made: with the forward, so that the backward reads no table of
// words, by our executor always, by a framework where the head and its loss go over the tokens in
// chunks, each of which is done with before the next begins (pytorch/torchtitan@b5bcd76
// torchtitan/components/loss.py, ChunkedLossWrapper).
inline bool loss_gradient_with_forward(const Plan& plan) {
  return (plan.runtime.performer().loss_gradient_with_forward || plan.loss_chunks > 1) &&
         !plan.has_parameter_server();  // there it is made behind the gather of outputs
}

// What a part does for every micro-batch alike: found once, looked up per op (part_work.cc).
struct PartWork {
  std::vector<BucketId> reads;                 // parameters, as operands name them
  std::vector<std::pair<BucketId, int>> adds;  // gradients that it adds to, and the use (0, 1)
  BodySizes sizes;
  std::int64_t duration = 1;  // estimated
  bool has_layers = false;
};

// A part of a compute op, in the order in which the row issues them.
struct Part {
  Op op;
  std::uint32_t index = 0, count = 1;               // of the stage's parts
  std::uint32_t work = 0;                           // into RowDraft::works
  bool last() const { return index + 1 == count; }  // of the stage's: the one at its output
};

// What of a stage's micro-batch is alive on the row, by boundary between parts (0: the stage's
// input, the last: its output).
struct Alive {
  std::span<ValueId> x, d;                                // at part boundaries
  std::span<ValueId> slab_input, slab_weight, left, dkv;  // per part
  std::span<ValueId> remade_input, remade_weight;         // likewise; empty: the order places no R
};

// A gradient of a bucket that no later part adds to. Use 1: a tied table's use by the head, where
// it is kept apart; all else is use 0.
struct ReadyGradient {
  std::size_t part = 0;  // the last that added to it
  BucketId about;
  int use = 0;
  Microbatch microbatch;  // whose, of those who add last
  ValueId gradient;
};

// Where an op stands beside a part: what the part waits for (as the passes make it: transfers,
// gathers, copies), the part, what it makes possible.
enum class Phase : std::int8_t { Before, Compute, Send, Offload, Reduce };
inline constexpr std::int32_t kPhases = 5;

// DataParallel through one GPU: what a rank has of a micro-batch beside its compute ops.
struct ThroughRoot {
  ValueId tokens;                  // of its samples; the root's: of the whole step
  std::vector<ValueId> parameter;  // by bucket: the copy that it computes with
  ValueId outputs;                 // what its head gives: logits
  ValueId gradient;                // of them; the root's: of all replicas', its own in front
};

// An exchange of a file's own group, behind so many parts.
struct OwnExchange {
  Op op;  // of the order
  std::size_t parts = 0;
};

struct RowDraft {
  RowDraft(Draft& draft, RankClass row);

  // --- facts
  Draft& draft;
  const Schedule& s;  // draft.schedule
  const Plan& plan;
  RankClass row;
  Position position;
  std::int32_t slices, units;           // units: micro-batches, by slice
  std::size_t slots = 0;                // (stage that the row holds, micro-batch, slice)
  std::vector<std::size_t> first_slot;  // by stage
  std::int32_t replica;                 // the first that the row stands for
  bool both_ends;                       // of the model are on this row
  bool owner;                           // its ranks update parameters

  // --- what split_parts finds
  std::vector<Part> parts;
  std::vector<std::size_t> step_begin;  // parts of the i-th issued compute op: an OVERLAP has two
  std::vector<std::span<const std::int16_t>> cuts;  // by slot, into cut_lists
  std::deque<std::vector<std::int16_t>> cut_lists;  // each different one once
  std::vector<PartWork> works;
  std::vector<OwnExchange> exchanges;

  // --- what hold_parameters and compute_parts make
  std::vector<ValueId> parameter, state;  // by bucket: what persists
  std::vector<ThroughRoot> through_root;  // by micro-batch; empty: replicas have batch and loss
  std::vector<Alive> alive_at;            // by slot, into alive_values
  std::vector<ValueId> alive_values;
  std::vector<ReadyGradient> ready;  // in the order in which they become so
  std::size_t first_compute = 0;     // op of the first issued compute op; the others follow it
  ValueId loss;

  // --- what sync_gradients and offload_gradients make
  std::vector<ValueId> gradient, host_gradient;  // by bucket: what the optimizer reads

  // --- the columns
  std::vector<DraftOp>& ops;  // the draft's; this row's from `first_op` on
  std::size_t first_op;
  std::vector<Value> values;

  // Places in the program. An OVERLAP stands at its second part.
  std::int32_t start() const { return 0; }
  std::int32_t at(std::size_t part, Phase phase) const {
    return static_cast<std::int32_t>(part) * kPhases + static_cast<std::int32_t>(phase) + 1;
  }
  std::int32_t end() const { return at(parts.size(), {}); }

  // The issued compute op of a step.
  OpId compute_op(std::size_t step) const {
    return {static_cast<std::int32_t>(first_compute + step)};
  }
  OpId last_compute() const;  // the last op beside a part on the compute stream
  OpId last_op() const { return {static_cast<std::int32_t>(ops.size()) - 1}; }
  DraftOp& add(const Op& op, std::int64_t duration, std::int32_t at) {
    return ops.emplace_back(op, duration, at, draft.operands.size());
  }
  // A collective about a bucket, or of the world about the norms. Without a match: of this row's
  // ranks alone.
  DraftOp& collective(OpKind kind, GroupKind over, Stream stream, BucketId about, std::int32_t at,
                      MatchId match = {});
  // Appends an operand to the op added last.
  void operand(ValueId value, Access access) {
    draft.operands.push_back({.value = value, .access = access});
  }
  std::span<Operand> operands_of(OpId id) { return draft.operands_of(ops[id.index()]); }

  ValueId value(ValueKind kind, std::int64_t bytes, Stage stage, const Op& about) {
    Value& made = values.emplace_back();
    made.kind = kind;
    made.row = row;
    made.stage = stage;
    made.microbatch = about.microbatch;
    made.instance = about.slice;
    made.bytes = {bytes};
    return {static_cast<std::int32_t>(values.size()) - 1};
  }
  ValueId value(ValueKind kind, std::int64_t bytes, const Op& op = {}) {
    return value(kind, bytes, op.stage, op);
  }
  ValueId bucket_value(ValueKind kind, BucketId bucket, std::int64_t bytes) {
    const ValueId id = value(kind, bytes);
    of(id).bucket = bucket;
    return id;
  }
  Value& of(ValueId id) { return values[id.index()]; }

  const Bucket& bucket(BucketId id) const { return s.buckets[id.index()]; }
  bool here(BucketId id) const { return bucket(id).position == position; }

  static std::size_t slice_of(const Op& op) {
    return static_cast<std::size_t>(std::max<int>(op.slice, 0));
  }
  std::size_t unit(const Op& op) const {
    return static_cast<std::size_t>(op.microbatch.value * slices) + slice_of(op);
  }
  std::size_t slot(Stage stage, const Op& about) const {
    return first_slot[stage.index()] + unit(about);
  }
  std::size_t slot(const Op& op) const { return slot(op.stage, op); }
  Alive& alive(const Op& op) { return alive_at[slot(op)]; }

  bool holds(Stage stage) const {  // in either direction
    return s.placement.down[stage.index()] == position ||
           (!s.placement.up.empty() && s.placement.up[stage.index()] == position);
  }
  bool first_stage(Stage stage) const { return stage.value == 0; }
  bool last_stage(Stage stage) const { return stage.value + 1 == s.placement.stages(); }
  bool remote(Stage stage, Microbatch microbatch) const {  // on another position
    return s.placement.position(stage, microbatch) != position;
  }
  // Whether both uses of a tied table add to one gradient, which is reduced once.
  bool one_table_gradient() const {
    return both_ends && (plan.runtime.performer().one_table_gradient || draft.plan.replicas() > 1);
  }

  // Tokens (instance 0) or targets (1) of the step, from the host. Returns where they lie.
  ValueId fetch_input(std::int32_t instance, std::int64_t bytes);

  // What an op of the micro-batch reads as the bucket's parameters.
  ValueId parameter_of(BucketId id, Microbatch microbatch) const {
    return (through_root.empty() ? parameter
                                 : through_root[microbatch.index()].parameter)[id.index()];
  }

  // The work of a part.
  const PartWork& work(const Part& part) const { return works[part.work]; }
  std::size_t begin_of(const Part& part) const {
    return static_cast<std::size_t>(cuts[slot(part.op)][part.index]);
  }
  std::size_t end_of(const Part& part) const {
    return part.last() ? s.segments[part.op.stage.index()].size()
                       : static_cast<std::size_t>(cuts[slot(part.op)][part.index + 1]);
  }
  std::span<const SegmentInfo> segments(const Part& part) const {
    const std::size_t begin = begin_of(part);
    return std::span{s.segments[part.op.stage.index()]}.subspan(begin, end_of(part) - begin);
  }
  const SegmentBuckets& buckets(const Part& part, std::size_t segment) const {
    return draft.buckets_of[position.index()][part.op.stage.index()][segment];
  }
};

// What the part does for every micro-batch alike.
PartWork part_work(const RowDraft& row, const Part& part);

// The passes in order (lower.h); each says its invariant in its own file.
void split_parts(RowDraft& row);
void hold_parameters(RowDraft& row);
void place_exchanges(RowDraft& row);
void compute_parts(RowDraft& row);
void place_transfers(RowDraft& row);
void shard_parameters(RowDraft& row);
void sync_gradients(RowDraft& row);
void offload(RowDraft& row);
void end_step(RowDraft& row);
// Appends the row's program to the draft, and its values to the schedule.
void weave(RowDraft& row);

// ZeRO-1 and 2: every rank gathers what the others have updated, behind the op `updated`; none: at
// the start of the step, where the first forward waits for what it reads alone.
void gather_updated(RowDraft& row, OpId updated, std::int32_t at);
// A copy between the memories: one op for all pairs (from, to). `about`: whose copies they are.
DraftOp& add_copy(RowDraft& row, OpKind kind, const Op& about, std::int32_t at,
                  std::span<const std::pair<ValueId, ValueId>> pairs);
// The same contents in the other memory.
ValueId add_twin(RowDraft& row, ValueId value, Home home);
// Where what a plan offloads of optimizer and parameters rests.
constexpr Home home_of_offloaded(const Plan& plan) {
  return plan.offload_to == OffloadTarget::Nvme ? Home::Nvme : Home::Host;
}

}  // namespace rehearse
