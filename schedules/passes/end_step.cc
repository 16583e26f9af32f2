// SPDX-License-Identifier: Apache-2.0
// What ends a step, once gradients are whole: norm, optimizer, and the gathers that bring what was
// updated to those who compute with it.
//
// Invariant behind it: every rank that owns a part of a bucket updates it once, behind the norm of
// all gradients; behind the step all replicas have, or will be brought, the same parameters.
#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

struct Norms {
  ValueId device, host;
};

// Sums of squares over all tensors of the world, a slot each and one more for the loss; behind them
// the rows of experts.
Norms norm_gradients(RowDraft& row) {
  const Estimates& estimates = row.draft.estimates;
  const std::int64_t bytes = 8 * row.draft.metrics();
  row.add({.kind = OpKind::GradNorm, .stream = Stream::Compute}, estimates.other, row.end());
  if (row.owner) {
    for (std::size_t i = row.gradient.size(); i-- > 0;) {
      if (row.gradient[i]) row.operand(row.gradient[i], Access::Read);
    }
  }
  if (row.loss) row.operand(row.loss, Access::Read);
  Norms norms{row.value(ValueKind::Metrics, bytes), row.value(ValueKind::Metrics, bytes)};
  row.of(norms.device).instance = row.of(norms.host).instance = 0;
  row.of(norms.host).home = Home::Host;
  row.operand(norms.device, Access::Write);
  if (row.plan.gpus() > 1) {
    row.collective(OpKind::AllReduce, GroupKind::World, Stream::Dp, {}, row.end(),
                   row.draft.shared_match(Meeting::World, 0, 0));
    row.operand(norms.device, Access::Update);
  }
  row.add({.kind = OpKind::Offload, .stream = Stream::D2h}, estimates.other, row.end());
  row.operand(norms.device, Access::Read);
  row.operand(norms.host, Access::Write);
  return norms;
}

class Updater {
 public:
  // `before_norm`: the compute op before the norm.
  Updater(RowDraft& row, Norms norms, OpId before_norm)
      : row_(row), norms_(norms), last_(before_norm), passing_(row.s.buckets.size()) {
    for (std::size_t i = 0; i < row.s.buckets.size(); ++i) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (row.here(id) && row.owner) mine_.push_back(id);
    }
  }

  // All buckets that the row's ranks own, in forward order. Returns the last update.
  OpId run() {
    const bool streams = row_.draft.plan.streams_state();
    const std::size_t ahead =
        streams ? std::min(static_cast<std::size_t>(row_.plan.prefetch), mine_.size()) : 0;
    for (std::size_t k = 0; k < ahead; ++k) fetch_state(mine_[k]);
    for (std::size_t k = 0; k < mine_.size(); ++k) {
      if (streams) {
        if (k + ahead < mine_.size()) fetch_state(mine_[k + ahead]);
        update_streamed(mine_[k]);
      } else if (row_.draft.plan.updates_on_host()) {
        update_on_host(mine_[k]);
      } else {
        update(mine_[k], row_.state[mine_[k].index()]);
      }
    }
    return last_;
  }

 private:
  // Brings the state of a bucket to the device, placed behind the last update; memory that others
  // have not left yet is what it waits for.
  void fetch_state(BucketId id) {
    const ValueId state = row_.state[id.index()];
    passing_[id.index()] = add_twin(row_, state, Home::Device);
    const std::pair pair(state, passing_[id.index()]);
    DraftOp& fetch = add_copy(row_, OpKind::Fetch, {.bucket = id}, row_.end(), {&pair, 1});
    fetch.after = last_;
    fetch.tie = row_.last_op().value;
  }

  void update(BucketId id, ValueId state) {
    step(id, Stream::Compute, row_.gradient[id.index()], norms_.device, state);
    row_.operand(row_.parameter[id.index()], Access::Update);
  }

  // The state passes through the device once per step, so the same kernel updates to the same bits.
  void update_streamed(BucketId id) {
    const std::pair pair(passing_[id.index()], row_.state[id.index()]);
    update(id, pair.first);
    add_copy(row_, OpKind::Offload, {.bucket = id}, row_.end(), {&pair, 1});
  }

  // On d2h, behind the gradients; the new parameters come back.
  void update_on_host(BucketId id) {
    const ValueId parameter = row_.parameter[id.index()];
    const ValueId updated = row_.bucket_value(
        row_.of(parameter).kind, id, row_.draft.layout.shape.element * row_.draft.owned(id));
    row_.of(updated).home = Home::Host;
    step(id, Stream::D2h, row_.host_gradient[id.index()], norms_.host, row_.state[id.index()]);
    row_.operand(updated, Access::Write);
    const std::pair pair(updated, parameter);
    DraftOp& fetch = add_copy(row_, OpKind::Fetch, {.bucket = id}, row_.end(), {&pair, 1});
    fetch.tie = row_.last_op().value;
  }

  void step(BucketId id, Stream stream, ValueId gradient, ValueId norms, ValueId state) {
    row_.add({.kind = OpKind::OptimizerStep, .stream = stream, .bucket = id},
             row_.draft.estimates.other, row_.end());
    last_ = row_.last_op();
    row_.operand(gradient, Access::Read);
    row_.operand(norms, Access::Read);
    row_.operand(state, Access::Update);
  }

  RowDraft& row_;
  Norms norms_;
  OpId last_;
  std::vector<BucketId> mine_;
  std::vector<ValueId> passing_;  // by bucket: the state on the device
};

}  // namespace

void end_step(RowDraft& row) {
  const OpId before_norm = row.draft.plan.streams_state() ? row.last_compute() : OpId{};
  const Norms norms = norm_gradients(row);
  const OpId updated = Updater(row, norms, before_norm).run();
  if (!row.plan.overlap_parameter_gather) gather_updated(row, updated, row.end());
}

}  // namespace rehearse
