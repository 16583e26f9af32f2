// SPDX-License-Identifier: Apache-2.0
// Gradients once they are ready: summed over tensor ranks where they are partial there, over the
// replicas (those that share a copy's shards, then those that hold the same), over the uses of a
// tied table, over the two homes of a bidirectional stage. Through one GPU (DataParallel) they go
// to it behind the whole backward of every micro-batch, on the compute stream.
//
// Invariant behind it: every bucket of a row that updates has one gradient, the sum of all
// contributions of the step, or this rank's shard of it.
#include <algorithm>

#include "schedules/passes/row_draft.h"
#include "schedules/scenario/zero/shard_groups.h"

namespace rehearse {
namespace {

class Reducer {
 public:
  explicit Reducer(RowDraft& row)
      : row_(row),
        reduced_(2 * row.s.buckets.size()),
        last_(reduced_.size()),
        aligned_(aligns(row)),
        through_root_(row.draft.plan.has_parameter_server()) {}

  void run() {
    // What is not overlapped is reduced behind the last part, or holds up the next one.
    const bool overlap = row_.plan.overlap_gradient_reduce;
    const OpId last = row_.compute_op(row_.step_begin.size() - 2);
    for (const ReadyGradient& ready : row_.ready) last_[slot(ready)] = &ready;
    for (const ReadyGradient& ready : row_.ready) {
      const std::size_t first = row_.ops.size();
      const bool behind_all = !overlap && !row_.draft.reduces_each_microbatch(ready.about);
      const Turn turn = through_root_
                            ? Turn{row_.at(end_of_backward(ready.part), Phase::Reduce), {}}
                        : aligned_   ? turn_of(ready.part)
                        : behind_all ? Turn{row_.end(), last}
                                     : Turn{row_.at(ready.part, Phase::Reduce), {}};
      reduce(ready, turn.at);
      for (std::size_t i = first; i < row_.ops.size(); ++i) {
        DraftOp& made = row_.ops[i];
        if (made.op.stream == Stream::Compute) continue;
        made.holds_compute = !overlap;
        made.waits_for = turn.behind;
      }
    }
    row_.gradient.assign(row_.s.buckets.size(), {});
    for (std::size_t i = row_.s.buckets.size(); i-- > 0;) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (row_.here(id)) row_.gradient[i] = join(id);
    }
  }

 private:
  // Where a reduction stands, and the compute op that it waits for though it reads nothing of it.
  struct Turn {
    std::int32_t at;
    OpId behind;
  };

  // Megatron (megatron/core/pipeline_parallel/schedules.py: grad_sync_func) starts the reductions
  // of a chunk on all positions when position 0 ends its last backward: compute is slower beside
  // them, and what each position lost alone would add up. Position r does so r backwards after its
  // own, or at its end.
  static bool aligns(const RowDraft& row) {
    const std::vector<Position>& down = row.s.placement.down;
    for (std::size_t stage = 0; stage < down.size(); ++stage) {
      if (down[stage].index() != stage % static_cast<std::size_t>(row.s.placement.positions)) {
        return false;
      }
    }
    return row.plan.runtime.aligned_reductions && row.plan.overlap_gradient_reduce &&
           row.s.placement.up.empty() && row.position.value > 0 &&
           !row.draft.plan.reduces_each_microbatch();
  }

  // A backward that is cut ends with its part 0.
  Turn turn_of(std::size_t part) const {
    const auto next = std::ranges::upper_bound(row_.step_begin, part);
    auto step = static_cast<std::size_t>(next - row_.step_begin.begin()) - 1;
    const std::size_t steps = row_.step_begin.size() - 1;
    const OpKind kind = row_.parts[part].op.kind;
    for (std::int32_t ends = row_.position.value;; ++step) {  // of backwards: its own, r others
      if (step == steps) return {row_.end(), row_.compute_op(steps - 1)};
      const Part& last = row_.parts[row_.step_begin[step + 1] - 1];
      if (last.op.kind == kind && last.index == 0 && ends-- == 0) break;
    }
    return {row_.at(row_.step_begin[step + 1] - 1, Phase::Reduce), row_.compute_op(step)};
  }

  // Sum over tp of the range that is partial, then over the replicas: all-reduce, or reduce-scatter
  // into the own shard; per micro-batch the shard is added to what earlier ones left.
  void reduce(const ReadyGradient& ready, std::int32_t at) {
    const auto& [part, about, use, microbatch, whole] = ready;
    const Bucket& bucket = row_.bucket(about);
    ValueId& sum = reduced_[slot(ready)];
    const bool each = row_.draft.reduces_each_microbatch(about);
    if (bucket.partial > 0) {
      row_.collective(OpKind::AllReduce, GroupKind::Tensor, Stream::Compute, about, at);
      row_.operand(whole, Access::Update);
    }
    if (!each) sum = whole;
    if (row_.s.replicas(bucket) == 1) return across(about, whole, at, {});
    if (through_root_) return to_root(ready, sum, at);
    const OpKind kind = row_.plan.zero_stage >= 1 ? OpKind::ReduceScatter : OpKind::AllReduce;
    DraftOp& over_replicas = row_.collective(kind, bucket.replicas, Stream::Dp, about, at);
    if (!each) {
      row_.operand(whole, Access::Update);
      return across(about, whole, at, {});
    }
    over_replicas.op.instance = microbatch.value;
    const ValueId shard =
        row_.bucket_value(ValueKind::Gradient, about, 4 * row_.draft.owned(about));
    row_.of(shard).shard = true;
    row_.of(shard).instance = row_.of(whole).instance;
    row_.operand(whole, Access::Read);
    row_.operand(shard, Access::Write);
    const bool once = sums_shards_once(row_.draft.plan);
    if (!once) across(about, shard, at, microbatch);
    if (!sum) {
      sum = shard;
    } else {
      row_.of(shard).microbatch = microbatch;
      add(about, shard, sum, at).op.instance = microbatch.value;
    }
    if (once && last_[slot(ready)] == &ready) across(about, sum, at, {});
  }

  // One autograd node of torch holds all parameters, so nothing leaves before the whole backward
  // has ended (torch/nn/parallel/_functions.py: Broadcast.backward). The root adds what it has
  // received to what earlier micro-batches left.
  void to_root(const ReadyGradient& ready, ValueId& sum, std::int32_t at) {
    const auto& [part, about, use, microbatch, whole] = ready;
    const std::int32_t bucket_use = about.value * 2 + use;
    row_.collective(OpKind::Reduce, row_.bucket(about).replicas, Stream::Compute, about, at,
                    row_.draft.shared_match(Meeting::Gradients, bucket_use, microbatch.value))
        .op.instance = microbatch.value;
    row_.operand(whole, row_.owner ? Access::Update : Access::Read);
    if (!row_.owner) return;
    if (!sum) {
      sum = whole;
      return;
    }
    Op& added = add(about, whole, sum, at).op;
    added.stream = Stream::Compute;
    added.instance = microbatch.value;
  }
  // The last part of the backward that the part belongs to.
  std::size_t end_of_backward(std::size_t part) const {
    const Op& op = row_.parts[part].op;
    while (part + 1 < row_.parts.size() && row_.parts[part + 1].op.microbatch == op.microbatch &&
           row_.parts[part + 1].op.kind == op.kind) {
      ++part;
    }
    return part;
  }

  // What the shard groups have summed, each by itself.
  void across(BucketId about, ValueId summed, std::int32_t at, Microbatch microbatch) {
    if (!row_.s.group(GroupKind::Replicate)) return;
    DraftOp& made = row_.collective(OpKind::AllReduce, GroupKind::Replicate, Stream::Dp, about, at);
    if (microbatch) made.op.instance = microbatch.value;
    row_.operand(summed, Access::Update);
  }

  // What the optimizer reads of a bucket.
  ValueId join(BucketId id) {
    const ValueId own = reduced_[id.index() * 2], head = reduced_[id.index() * 2 + 1];
    if (own && head) add(id, head, own, row_.end());  // a tied table's: in order of use
    const ValueId sum = own ? own : head;
    if (!row_.owner) return sum;
    const bool mirrored = !row_.s.placement.up.empty();  // the stage's other replica
    if (mirrored || (row_.bucket(id).tied && row_.s.group(GroupKind::Embedding))) {
      const MatchId match =
          mirrored ? row_.draft.shared_match(Meeting::Mirror, row_.draft.identity_of[id.index()],
                                             row_.replica)
                   : row_.draft.shared_match(Meeting::Embed, 0, row_.replica);
      row_.collective(OpKind::AllReduce, mirrored ? GroupKind::Mirror : GroupKind::Embedding,
                      Stream::Dp, id, row_.end(), match);
      row_.operand(sum, Access::Update);
    }
    return sum;
  }

  static std::size_t slot(const ReadyGradient& ready) {
    return ready.about.index() * 2 + static_cast<std::size_t>(ready.use);
  }

  DraftOp& add(BucketId about, ValueId what, ValueId to, std::int32_t at) {
    DraftOp& made = row_.add({.kind = OpKind::Add, .stream = Stream::Dp, .bucket = about},
                             row_.draft.estimates.other, at);
    made.tie = static_cast<std::int32_t>(row_.s.buckets.size()) - about.value;
    row_.operand(what, Access::Read);
    row_.operand(to, Access::Update);
    return made;
  }

  RowDraft& row_;
  std::vector<ValueId> reduced_;            // by bucket * 2 + use
  std::vector<const ReadyGradient*> last_;  // likewise: of the step
  bool aligned_, through_root_;
};

}  // namespace

void sync_gradients(RowDraft& row) {
  Reducer(row).run();
}

}  // namespace rehearse
