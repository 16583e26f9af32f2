// SPDX-License-Identifier: Apache-2.0
// Gradients once they are ready: summed over tensor ranks where they are partial there, over the
// replicas, over the uses of a tied table, over the two homes of a bidirectional stage.
//
// Invariant behind it: every bucket of a row that updates has one gradient, the sum of all
// contributions of the step, or this rank's shard of it.
#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

class Reducer {
 public:
  explicit Reducer(RowDraft& row) : row_(row), reduced_(2 * row.s.buckets.size()) {}

  void run() {
    // What is not overlapped is reduced behind the last part, or holds up the next one.
    const bool overlap = row_.plan.overlap_gradient_reduce;
    const bool behind_all = !overlap && !row_.draft.plan.reduces_each_microbatch();
    const OpId last = row_.compute_op(row_.step_begin.size() - 2);
    for (const ReadyGradient& ready : row_.ready) {
      const std::size_t first = row_.ops.size();
      reduce(ready, behind_all ? row_.end() : row_.at(ready.part, Phase::Reduce));
      if (overlap || row_.ops.size() == first) continue;
      for (std::size_t i = first; i < row_.ops.size(); ++i) {
        row_.ops[i].holds_compute = row_.ops[i].op.stream != Stream::Compute;
      }
      if (behind_all && row_.ops.back().holds_compute) row_.ops.back().waits_for = last;
    }
    row_.gradient.assign(row_.s.buckets.size(), {});
    for (std::size_t i = row_.s.buckets.size(); i-- > 0;) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (row_.here(id)) row_.gradient[i] = join(id);
    }
  }

 private:
  // Sum over tp of the range that is partial, then over the replicas: all-reduce, or reduce-scatter
  // into the own shard; per micro-batch the shard is added to what earlier ones left.
  void reduce(const ReadyGradient& ready, std::int32_t at) {
    const auto& [part, about, use, microbatch, whole] = ready;
    const Bucket& bucket = row_.bucket(about);
    ValueId& sum = reduced_[about.index() * 2 + static_cast<std::size_t>(use)];
    const bool each = row_.draft.plan.reduces_each_microbatch();
    if (bucket.partial > 0) {
      row_.collective(OpKind::AllReduce, GroupKind::Tensor, Stream::Compute, about, at);
      row_.operand(whole, Access::Update);
    }
    if (!each) sum = whole;
    if (row_.s.replicas(bucket) == 1) return;
    const bool server = row_.draft.plan.has_parameter_server();
    const OpKind kind = server                      ? OpKind::Reduce
                        : row_.plan.zero_stage >= 1 ? OpKind::ReduceScatter
                                                    : OpKind::AllReduce;
    DraftOp& over_replicas = row_.collective(
        kind, bucket.replicas, Stream::Dp, about, at,
        server ? row_.draft.shared_match(Meeting::Server, about.value, use) : MatchId{});
    if (!each) {
      row_.operand(whole, Access::Update);
      return;
    }
    over_replicas.op.instance = microbatch.value;
    const ValueId shard =
        row_.bucket_value(ValueKind::Gradient, about, 4 * row_.draft.owned(about));
    row_.of(shard).shard = true;
    row_.of(shard).instance = row_.of(whole).instance;
    row_.operand(whole, Access::Read);
    row_.operand(shard, Access::Write);
    if (!sum) {
      sum = shard;
      return;
    }
    row_.of(shard).microbatch = microbatch;
    add(about, shard, sum, at).op.instance = microbatch.value;
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

  DraftOp& add(BucketId about, ValueId what, ValueId to, std::int32_t at) {
    DraftOp& made = row_.add({.kind = OpKind::Add, .stream = Stream::Dp, .bucket = about},
                             row_.draft.estimates.other, at);
    made.tie = static_cast<std::int32_t>(row_.s.buckets.size()) - about.value;
    row_.operand(what, Access::Read);
    row_.operand(to, Access::Update);
    return made;
  }

  RowDraft& row_;
  std::vector<ValueId> reduced_;  // by bucket * 2 + use
};

}  // namespace

void sync_gradients(RowDraft& row) {
  Reducer(row).run();
}

}  // namespace rehearse
