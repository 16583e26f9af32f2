// SPDX-License-Identifier: Apache-2.0
// What ends a step, once gradients are whole: norm, optimizer, and the gathers that bring what was
// updated to those who compute with it.
//
// Invariant behind it: every rank that owns a part of a bucket updates it once, behind the norm of
// all gradients; behind the step all replicas have, or will be brought, the same parameters.
#include "schedules/passes/row_draft.h"
#include "schedules/scenario/memory/optimizer_state.h"

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
      : row_(row),
        norms_(norms),
        last_(before_norm),
        state_here_(row.state),
        parameter_here_(row.parameter) {
    for (std::size_t i = 0; i < row.s.buckets.size(); ++i) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (row.here(id) && row.owner) mine_.push_back(id);
    }
  }

  // All buckets that the row's ranks own, in forward order. Returns the last update.
  OpId run() {
    const Plan& plan = row_.draft.plan;
    const bool passes = plan.streams_state() || plan.offload.parameters;
    const std::size_t ahead =
        passes ? std::min(static_cast<std::size_t>(row_.plan.prefetch), mine_.size()) : 0;
    for (std::size_t k = 0; k < mine_.size(); ++k) {
      if (plan.updates_on_host()) {
        update_on_host(mine_[k]);
        continue;
      }
      for (std::size_t next = k == 0 ? 0 : k + ahead; next < std::min(k + ahead + 1, mine_.size());
           ++next) {
        bring(mine_[next]);
      }
      update(mine_[k]);
    }
    return last_;
  }

 private:
  using Pairs = std::vector<std::pair<ValueId, ValueId>>;

  // Brings what an update of the bucket reads to the device, placed behind the last update; memory
  // that others have not left yet is what it waits for.
  void bring(BucketId id) {
    Pairs in;
    if (row_.draft.plan.streams_state()) {
      ValueId& state = state_here_[id.index()];
      in.emplace_back(state, add_twin(row_, state, Home::Device));
      state = in.back().second;
    }
    if (row_.draft.plan.offload.parameters) {
      ValueId& parameter = parameter_here_[id.index()];
      const std::pair pair(parameter, add_twin(row_, parameter, Home::Device));
      if (is_master()) in.push_back(pair);
      parameter = pair.second;
    }
    if (in.empty()) return;
    DraftOp& fetch = add_copy(row_, OpKind::Fetch, {.bucket = id}, row_.end(), in);
    fetch.after = last_;
    fetch.tie = row_.last_op().value;
  }

  // Whether parameters are their own master copy, which an update reads.
  bool is_master() const { return master_bytes(row_.plan.precision) == 0; }

  // State that passes through the device does so once per step, so the same kernel updates to the
  // same bits.
  void update(BucketId id) {
    const std::size_t i = id.index();
    step(id, Stream::Compute, row_.gradient[i], norms_.device, state_here_[i]);
    const bool written = parameter_here_[i] != row_.parameter[i] && !is_master();
    row_.operand(parameter_here_[i], written ? Access::Write : Access::Update);
    Pairs out;
    if (state_here_[i] != row_.state[i]) out.emplace_back(state_here_[i], row_.state[i]);
    if (parameter_here_[i] != row_.parameter[i]) {
      out.emplace_back(parameter_here_[i], row_.parameter[i]);
    }
    if (!out.empty()) add_copy(row_, OpKind::Offload, {.bucket = id}, row_.end(), out);
  }

  // On d2h, behind the gradients; the new parameters come back, unless they stay there.
  void update_on_host(BucketId id) {
    const ValueId parameter = row_.parameter[id.index()];
    if (row_.draft.plan.offload.parameters) {
      step(id, Stream::D2h, row_.host_gradient[id.index()], norms_.host, row_.state[id.index()]);
      row_.operand(parameter, Access::Update);
      return;
    }
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
  std::vector<ValueId> state_here_, parameter_here_;  // by bucket: on the device
};

}  // namespace

void end_step(RowDraft& row) {
  const Plan& plan = row.draft.plan;
  const bool passes = plan.streams_state() || plan.offload.parameters;
  const OpId before_norm = passes ? row.last_compute() : OpId{};
  const Norms norms = norm_gradients(row);
  const OpId updated = Updater(row, norms, before_norm).run();
  if (!row.plan.overlap_parameter_gather) gather_updated(row, updated, row.end());
}

}  // namespace rehearse
