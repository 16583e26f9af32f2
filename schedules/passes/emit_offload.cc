// SPDX-License-Identifier: Apache-2.0
// What lies in host memory, by plan.offload, and the copies that bring it there and back.
//
// Activations: what a part of a forward keeps goes to the host behind it and comes back `prefetch`
// parts before its backward; where that follows so soon that nothing would be gained, it stays.
// Optimizer, our runtime: a bucket's state passes through the device once per step, so the same
// kernel updates it to the same bits. Frameworks update on the host instead (Ren et al. 2021,
// ZeRO-Offload, arXiv 2101.06840): gradients go there, parameters come back.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {

void RowEmitter::prepare_offload() {
  if (d_.plan.offload != OffloadMode::Activations) return;
  leaves_.assign(parts_.size(), false);
  returns_.assign(parts_.size(), {});
  const auto ahead = static_cast<std::size_t>(d_.plan.prefetch);
  std::vector<std::size_t> forward(alive_values_.size());  // by the place of the part's slab
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const auto place =
        static_cast<std::size_t>(&alive(part.op).slab_input[part.index] - alive_values_.data());
    if (part.op.kind == OpKind::Forward) forward[place] = i;
    if (!is_backward(part.op.kind) || i < forward[place] + ahead + 2) continue;
    leaves_[forward[place]] = true;
    returns_[i - ahead].push_back(forward[place]);
  }
}

// Frameworks count a part's input in what it keeps.
std::vector<ValueId*> RowEmitter::kept_of(const Part& part) {
  Alive& state = alive(part.op);
  std::vector<ValueId*> kept;
  const bool input = part.index > 0 || !first_stage(part.op.stage);
  if (input && rehearse()) kept.push_back(&state.x[part.index]);
  for (ValueId* slab : {&state.slab_input[part.index], &state.slab_weight[part.index]}) {
    if (*slab) kept.push_back(slab);
  }
  return kept;
}

// The same contents in the other memory.
ValueId RowEmitter::twin(ValueId id, Home home) {
  Value made = s_.values[id.index()];
  made.home = home;
  made.persistent = false;
  s_.values.push_back(made);
  return {static_cast<std::int32_t>(s_.values.size()) - 1};
}

// One op for all pairs (from, to). `about`: whose copies they are.
OpId RowEmitter::copy(OpKind kind, const Op& about,
                      std::span<const std::pair<ValueId, ValueId>> pairs) {
  std::int64_t bytes = 0;
  for (const auto& [from, to] : pairs) {
    bytes += std::min(s_.values[from.index()].bytes.value, s_.values[to.index()].bytes.value);
  }
  Op op = about;
  op.kind = kind;
  op.stream = traits(kind).stream;
  const OpId id = d_.add(op, d_.estimates.copy(bytes));
  for (const auto& [from, to] : pairs) {
    d_.operand(from, Access::Read);
    d_.operand(to, s_.values[to.index()].persistent ? Access::Update : Access::Write);
  }
  return id;
}

void RowEmitter::leave(std::size_t i) {
  if (leaves_.empty() || !leaves_[i]) return;
  std::vector<std::pair<ValueId, ValueId>> pairs;
  for (ValueId* kept : kept_of(parts_[i])) {
    pairs.emplace_back(*kept, twin(*kept, Home::Host));
    *kept = pairs.back().second;
  }
  if (!pairs.empty()) copy(OpKind::Offload, parts_[i].op, pairs);
}

void RowEmitter::bring_back(std::size_t i) {
  if (returns_.empty()) return;
  for (const std::size_t forward : returns_[i]) {
    std::vector<std::pair<ValueId, ValueId>> pairs;
    for (ValueId* kept : kept_of(parts_[forward])) {
      pairs.emplace_back(*kept, twin(*kept, Home::Device));
      *kept = pairs.back().second;
    }
    if (pairs.empty()) continue;
    const OpId id = copy(OpKind::Fetch, parts_[forward].op, pairs);
    d_.ops[id.index()].after = last_compute_;
    d_.ops[id.index()].tie = id.value;  // in the order of their use
  }
}

// Brings the states of these buckets to the device, placed behind `after`; memory that others have
// not left yet is what they wait for.
void RowEmitter::fetch_states(std::span<const BucketId> mine, OpId after) {
  for (const BucketId id : mine) {
    ValueId& passing = passing_state_[id.index()];
    passing = twin(state_[id.index()], Home::Device);
    const std::pair pair(state_[id.index()], passing);
    const OpId op = copy(OpKind::Fetch, {.bucket = id}, {&pair, 1});
    d_.ops[op.index()].after = after;
    d_.ops[op.index()].tie = op.value;
  }
}

// The updates of all buckets that the row's ranks own, in forward order. Returns the last.
// `before_norm`: the compute op before the norm.
OpId RowEmitter::update(std::span<const ValueId> gradient, ValueId norms, ValueId host_norms,
                        OpId before_norm) {
  std::vector<BucketId> mine;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (bucket(id).position == position_ && owner()) mine.push_back(id);
  }
  const std::span<const BucketId> all = mine;
  const std::size_t ahead = std::min(static_cast<std::size_t>(d_.plan.prefetch), mine.size());
  if (streams_state()) {
    passing_state_.assign(gradient.size(), {});
    fetch_states(all.first(ahead), before_norm);
  }
  OpId last = before_norm;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const std::size_t i = mine[k].index();
    const ValueId parameter = sharded_parameters() ? shard_[i] : parameter_[i];
    Op step{.kind = OpKind::OptimizerStep, .stream = Stream::Compute, .bucket = mine[k]};
    ValueId from = gradient[i], counts = norms, state = state_[i], to = parameter;
    if (streams_state()) {
      if (k + ahead < mine.size()) fetch_states(all.subspan(k + ahead, 1), last);
      state = passing_state_[i];
    } else if (updates_on_host()) {
      step.stream = Stream::D2h;  // behind the gradients, by the host
      from = host_gradient_[i];
      counts = host_norms;
      to = bucket_value(parameter_kind(), mine[k], shape_.element * owned(mine[k]), false);
      s_.values[to.index()].home = Home::Host;
    }
    last = d_.add(step, d_.estimates.other);
    d_.operand(from, Access::Read);
    d_.operand(counts, Access::Read);
    d_.operand(state, Access::Update);
    d_.operand(to, updates_on_host() ? Access::Write : Access::Update);
    if (streams_state()) {
      const std::pair pair(state, state_[i]);
      copy(OpKind::Offload, {.bucket = mine[k]}, {&pair, 1});
    } else if (updates_on_host()) {
      const OpId fetch = d_.add({.kind = OpKind::Fetch, .stream = Stream::H2d, .bucket = mine[k]},
                                d_.estimates.copy(s_.values[to.index()].bytes.value));
      d_.ops[fetch.index()].tie = fetch.value;
      d_.operand(to, Access::Read);
      d_.operand(parameter, Access::Update);
    }
  }
  return last;
}

// Frameworks that update on the host: a gradient goes there as soon as it is whole.
void RowEmitter::gradient_to_host(BucketId id, ValueId gradient) {
  if (!updates_on_host() || !owner() || !gradient) return;
  host_gradient_.resize(s_.buckets.size());
  ValueId& host = host_gradient_[id.index()];
  host = bucket_value(ValueKind::Gradient, id, d_.plan.precision.gradients * owned(id), false);
  s_.values[host.index()].home = Home::Host;
  const std::pair pair(gradient, host);
  copy(OpKind::Offload, {.bucket = id}, {&pair, 1});
}

}  // namespace rehearse
