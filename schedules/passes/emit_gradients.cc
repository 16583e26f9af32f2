// SPDX-License-Identifier: Apache-2.0
// Gradients once they are ready: reduced, added, normed; then the optimizer and the gathers after
// it.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {

// Sum over tp of the range that is partial, then over dp: all-reduce, or reduce-scatter into the
// own shard; per micro-batch the shard is added to what earlier ones left.
void RowEmitter::reduce(BucketId about, int use, Microbatch microbatch) {
  Accumulator& sum = accumulator(about, use);
  const Bucket& of = bucket(about);
  const bool each = reduce_each_microbatch();
  if (!sum.whole) return;  // an OVERLAP's halves finish two micro-batches: reduced together
  if (of.partial > 0) {
    collective(OpKind::AllReduce, GroupKind::Tensor, Stream::Compute, about);
    d_.operand(sum.whole, Access::Update);
  }
  if (shards() == 1) {
    sum.reduced = sum.whole;
    return;
  }
  if (server()) {
    collective(OpKind::Reduce, GroupKind::Data, Stream::Dp, about,
               d_.shared_match(Meeting::Server, about.value, use));
    d_.operand(sum.whole, Access::Update);
    sum.reduced = sum.whole;
    return;
  }
  const bool scatter = d_.plan.zero_stage >= 1;
  collective(scatter ? OpKind::ReduceScatter : OpKind::AllReduce, GroupKind::Data, Stream::Dp,
             about);
  if (!each) {
    d_.operand(sum.whole, Access::Update);
    sum.reduced = sum.whole;
    return;
  }
  d_.ops.back().op.instance = microbatch.value;
  const ValueId part = bucket_value(ValueKind::Gradient, about, 4 * of.padded / shards(), false);
  s_.values[part.index()].shard = true;
  s_.values[part.index()].instance = s_.values[sum.whole.index()].instance;
  d_.operand(sum.whole, Access::Read);
  d_.operand(part, Access::Write);
  sum.whole = {};
  if (!sum.reduced) {
    sum.reduced = part;
    return;
  }
  s_.values[part.index()].microbatch = microbatch;
  Op add{.kind = OpKind::Add, .stream = Stream::Dp, .bucket = about, .instance = microbatch.value};
  d_.add(add, d_.estimates.other);
  d_.ops.back().tie = static_cast<std::int32_t>(s_.buckets.size()) - about.value;
  d_.operand(part, Access::Read);
  d_.operand(sum.reduced, Access::Update);
}

// Parameters are gathered as they are computed with, gradients travel in the plan's type: over tp
// what is partial there, and between the replicas or uses of a stage (mirror, embed) what a rank
// holds after its own group has reduced it.
Carried RowEmitter::carried(OpKind kind, GroupKind over, BucketId about) const {
  if (!about) return {.elements = d_.num_tensors + 1, .element_bytes = 8};
  const std::int64_t whole = bucket(about).padded;
  if (kind == OpKind::Unshard || kind == OpKind::AllGather || kind == OpKind::Broadcast) {
    return {.elements = whole, .element_bytes = static_cast<std::int32_t>(shape_.element)};
  }
  const bool held = over == GroupKind::Mirror || over == GroupKind::Embedding;
  return {.elements = over == GroupKind::Tensor ? bucket(about).partial
                      : held                    ? owned(about)
                                                : whole,
          .element_bytes = d_.plan.precision.gradients};
}

void RowEmitter::contributed(const Part& part) {
  std::vector<std::pair<BucketId, int>> ready;
  for (const auto& [about, use] : work(part).adds) {
    std::int32_t& open =
        reduce_each_microbatch() ? open_of_unit(about, use, part.op) : accumulator(about, use).open;
    if (--open == 0) ready.emplace_back(about, use);
  }
  std::sort(ready.begin(), ready.end(), [](const auto& a, const auto& b) {  // forward order
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  });
  for (const auto& [about, use] : ready) {
    if (held_) {
      deferred_.push_back(about);
      deferred_use_.push_back(use);
    } else {
      reduce(about, use, part.op.microbatch);
    }
  }
}

// Norm, clipping, optimizer; what is reduced after all compute; gathers that are not overlapped.
void RowEmitter::finish_step() {
  const OpId last = last_compute_;
  for (std::size_t i = 0; i < deferred_.size(); ++i) {
    reduce(deferred_[i], deferred_use_[i], {});
    if (d_.ops.back().op.stream != Stream::Compute) d_.wait_for(last);
  }
  const std::size_t n = s_.buckets.size();
  const std::int32_t replica = s_.rows[row_.index()].data_begin;
  std::vector<ValueId> gradient(n);
  for (std::size_t i = n; i-- > 0;) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (bucket(id).position != position_) continue;
    Accumulator& own = accumulator(id, 0);
    Accumulator& head = accumulator(id, 1);
    if (own.reduced && head.reduced) {  // both uses of a tied table: added in order of use
      d_.add({.kind = OpKind::Add, .stream = Stream::Dp, .bucket = id}, d_.estimates.other);
      d_.ops.back().tie = static_cast<std::int32_t>(n) - id.value;
      d_.operand(head.reduced, Access::Read);
      d_.operand(own.reduced, Access::Update);
    }
    gradient[i] = own.reduced ? own.reduced : head.reduced;
    if (server() && !owner()) continue;
    if (!s_.placement.up.empty()) {  // the stage's other replica
      collective(OpKind::AllReduce, GroupKind::Mirror, Stream::Dp, id,
                 d_.shared_match(Meeting::Mirror, d_.identity_of[i], replica));
      d_.operand(gradient[i], Access::Update);
    } else if (bucket(id).tied && s_.group(GroupKind::Embedding)) {
      collective(OpKind::AllReduce, GroupKind::Embedding, Stream::Dp, id,
                 d_.shared_match(Meeting::Embed, 0, replica));
      d_.operand(gradient[i], Access::Update);
    }
    gradient_to_host(id, gradient[i]);
  }
  const OpId before_norm = last_compute_;
  const std::int32_t tensors = d_.num_tensors + 1;  // a slot each, one more for the loss
  d_.add({.kind = OpKind::GradNorm, .stream = Stream::Compute}, d_.estimates.other);
  last_compute_ = {static_cast<std::int32_t>(d_.ops.size()) - 1};
  if (owner()) {
    for (std::size_t i = n; i-- > 0;) {
      if (gradient[i]) d_.operand(gradient[i], Access::Read);
    }
  }
  if (loss_) d_.operand(loss_, Access::Read);
  const ValueId norms = value(ValueKind::Metrics, 8 * tensors);
  s_.values[norms.index()].instance = 0;
  d_.operand(norms, Access::Write);
  if (d_.plan.gpus() > 1) {
    collective(OpKind::AllReduce, GroupKind::World, Stream::Dp, {},
               d_.shared_match(Meeting::World, 0, 0));
    d_.operand(norms, Access::Update);
  }
  const ValueId host = value(ValueKind::Metrics, 8 * tensors);
  s_.values[host.index()].home = Home::Host;
  s_.values[host.index()].instance = 0;
  d_.add({.kind = OpKind::Offload, .stream = Stream::D2h}, d_.estimates.other);
  d_.operand(norms, Access::Read);
  d_.operand(host, Access::Write);
  const OpId updated = update(gradient, norms, host, before_norm);
  if (!d_.plan.overlap_parameter_gather) gather_parameters(updated);
  if (server()) {
    for (std::size_t i = 0; i < n; ++i) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (bucket(id).position != position_) continue;
      collective(OpKind::Broadcast, GroupKind::Data, Stream::Dp, id,
                 d_.shared_match(Meeting::Broadcast, id.value, 0));
      d_.operand(parameter_[i], Access::Update);
    }
  }
}

}  // namespace rehearse
