// SPDX-License-Identifier: Apache-2.0
// What lies in host memory meanwhile, by plan.offload, and the copies that bring it there and back.
//
// Activations: what a part of a forward keeps goes to the host behind it and comes back `prefetch`
// parts before its backward; where that follows so soon that nothing would be gained, it stays.
// Optimizer, where frameworks update on the host (Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840):
// a gradient goes there as soon as it is whole.
//
// Invariant behind it: an offloaded value is not touched on the device behind its OFFLOAD: the
// backward reads the copy that a FETCH has brought back.
#include <algorithm>

#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

// Frameworks count a part's input in what it keeps.
std::vector<ValueId> kept_of(RowDraft& row, const Part& part) {
  const Alive& state = row.alive(part.op);
  std::vector<ValueId> kept;
  const bool input = part.index > 0 || !row.first_stage(part.op.stage);
  if (input && row.plan.runtime.performer().keeps_slabs) kept.push_back(state.x[part.index]);
  for (const ValueId slab : {state.slab_input[part.index], state.slab_weight[part.index]}) {
    if (slab) kept.push_back(slab);
  }
  return kept;
}

// Sends what the part `forward` keeps to the host behind it and fetches it before the part `back`.
// Records in `device` what came back of each value.
void send_and_fetch(RowDraft& row, std::size_t forward, std::size_t back,
                    std::vector<ValueId>& device) {
  std::vector<std::pair<ValueId, ValueId>> out, in;
  for (const ValueId kept : kept_of(row, row.parts[forward])) {
    out.emplace_back(kept, add_twin(row, kept, Home::Host));
  }
  if (out.empty()) return;
  const std::size_t next_step =
      *std::upper_bound(row.step_begin.begin(), row.step_begin.end(), forward);
  const Op& about = row.parts[forward].op;
  add_copy(row, OpKind::Offload, about, row.at(next_step - 1, Phase::Offload), out);
  for (const auto& [kept, host] : out) {
    device[kept.index()] = add_twin(row, host, Home::Device);
    in.emplace_back(host, device[kept.index()]);
  }
  DraftOp& fetch = add_copy(row, OpKind::Fetch, about, row.at(back, Phase::Before), in);
  fetch.after = kLastCompute;
  fetch.tie = row.last_op().value;  // in the order of their use
}

void offload_activations(RowDraft& row) {
  const auto ahead = static_cast<std::size_t>(row.plan.prefetch);
  std::vector<std::size_t> forward(row.alive_values.size());  // by the place of the part's slab
  std::vector<ValueId> device(row.values.size());
  for (std::size_t step = 0; step + 1 < row.step_begin.size(); ++step) {
    for (std::size_t i = row.step_begin[step]; i < row.step_begin[step + 1]; ++i) {
      const Part& part = row.parts[i];
      const auto place = static_cast<std::size_t>(&row.alive(part.op).slab_input[part.index] -
                                                  row.alive_values.data());
      if (part.op.kind == OpKind::Forward) {
        forward[place] = i;
      } else if (is_backward(part.op.kind) && i >= forward[place] + ahead + 2) {
        send_and_fetch(row, forward[place], i - ahead, device);
      }
    }
    for (Operand& operand : row.operands_of(row.compute_op(step))) {
      if (operand.value.index() >= device.size()) continue;
      if (const ValueId back = device[operand.value.index()]) operand.value = back;
    }
  }
}

void offload_gradients(RowDraft& row) {
  row.host_gradient.assign(row.s.buckets.size(), {});
  for (std::size_t i = row.s.buckets.size(); i-- > 0;) {
    if (!row.owner || !row.gradient[i]) continue;
    const BucketId id{static_cast<std::int32_t>(i)};
    const ValueId host = row.bucket_value(ValueKind::Gradient, id,
                                          row.plan.precision.gradients * row.draft.owned(id));
    row.of(host).home = Home::Host;
    row.host_gradient[i] = host;
    const std::pair pair(row.gradient[i], host);
    add_copy(row, OpKind::Offload, {.bucket = id}, row.end(), {&pair, 1});
  }
}

}  // namespace

DraftOp& add_copy(RowDraft& row, OpKind kind, const Op& about, std::int32_t at,
                  std::span<const std::pair<ValueId, ValueId>> pairs) {
  std::int64_t bytes = 0;
  for (const auto& [from, to] : pairs) {
    bytes += std::min(row.of(from).bytes.value, row.of(to).bytes.value);
  }
  Op op = about;
  op.kind = kind;
  op.stream = traits(kind).stream;
  DraftOp& made = row.add(op, row.draft.estimates.copy(bytes), at);
  for (const auto& [from, to] : pairs) {
    row.operand(from, Access::Read);
    row.operand(to, row.of(to).persistent ? Access::Update : Access::Write);
  }
  return made;
}

ValueId add_twin(RowDraft& row, ValueId value, Home home) {
  Value made = row.of(value);
  made.home = home;
  made.persistent = false;
  row.values.push_back(made);
  return {static_cast<std::int32_t>(row.values.size()) - 1};
}

void offload(RowDraft& row) {
  if (row.plan.offload.activations) offload_activations(row);
  if (row.draft.plan.updates_on_host()) offload_gradients(row);
}

}  // namespace rehearse
