// SPDX-License-Identifier: Apache-2.0
// What lies in host memory meanwhile, or on the node's drives, by plan.offload, and the copies that
// bring it there and back.
//
// Activations: what a part of a forward keeps goes to the host behind it and comes back `prefetch`
// parts before its backward; where that follows so soon that nothing would be gained, it stays. Of
// which parts, plan.offload_activations says (schedules/body/leaving.h).
// Optimizer, where frameworks update on the host (Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840):
// a gradient goes there as soon as it is whole. With offload_to nvme it goes on to the drives, as
// the state is there (ZeRO-Infinity, arXiv 2104.07857; swap_out_gradients of deepspeed/runtime/
// swap_tensor, deepspeedai/DeepSpeed edaa7221); activations stay in the host's memory.
//
// Invariant behind it: an offloaded value is not touched on the device behind its OFFLOAD: the
// backward reads the copy that a FETCH has brought back.
#include <algorithm>

#include "schedules/body/leaving.h"
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

// Parts are segments where activations leave, but for those of pairs, which are whole stages: these
// leave as their layers do.
bool leaves_the_device(const RowDraft& row, const Part& part) {
  const std::vector<SegmentInfo>& segments = row.s.segments[part.op.stage.index()];
  const std::int32_t chosen = row.draft.leaving[part.op.stage.index()];
  const std::size_t begin = row.begin_of(part), count = row.segments(part).size();
  if (count == 1) return leaves(row.plan, segments, begin, chosen);
  for (std::size_t i = begin; i < begin + count; ++i) {
    if (segments[i].kind == SegmentKind::Layer && !leaves(row.plan, segments, i, chosen)) {
      return false;
    }
  }
  return true;
}
std::size_t ahead_of(const RowDraft& row, const Part& part) {
  return static_cast<std::size_t>(fetched_ahead(row.plan, row.s.segments[part.op.stage.index()],
                                                row.draft.leaving[part.op.stage.index()]));
}

void offload_activations(RowDraft& row) {
  std::vector<std::size_t> forward(row.alive_values.size());  // by the place of the part's slab
  std::vector<bool> is_back(row.alive_values.size(), false);  // for an R
  std::vector<ValueId> device(row.values.size());
  for (std::size_t step = 0; step + 1 < row.step_begin.size(); ++step) {
    for (std::size_t i = row.step_begin[step]; i < row.step_begin[step + 1]; ++i) {
      const Part& part = row.parts[i];
      const auto place = static_cast<std::size_t>(&row.alive(part.op).slab_input[part.index] -
                                                  row.alive_values.data());
      const bool again = part.op.kind == OpKind::Recompute;
      if (part.op.kind == OpKind::Forward) {
        forward[place] = i;
      } else if ((again || is_backward(part.op.kind)) && !is_back[place] &&
                 leaves_the_device(row, part)) {
        is_back[place] = again;
        const std::size_t ahead = ahead_of(row, part);
        // Who leaves for nothing needs as long on the way out as on the way back.
        const std::size_t out = chooses_leaving(row.plan) ? ahead : 0;
        if (i >= forward[place] + out + ahead + 2) {
          send_and_fetch(row, forward[place], i - ahead, device);
        }
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
    row.of(host).home = home_of_offloaded(row.plan);
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

// By the first segment that an op of layers covers, what it takes at most. Of a pair nobody knows
// the halves; of a split backward the first reads what comes back.
std::vector<std::int32_t> chosen_leaving(const Draft& draft) {
  struct Times {
    std::int64_t forward = 0, backward = 0, input = 0, out = 0, in = 0;
  };
  std::vector<std::vector<Times>> of_stage;
  for (const auto& segments : draft.schedule.segments) of_stage.emplace_back(segments.size());
  for (const DraftOp& made : draft.ops) {
    const Op& op = made.op;
    if (!op.stage) continue;
    const std::span segments{draft.schedule.segments[op.stage.index()]};
    const auto begin = static_cast<std::size_t>(op.segment_begin);
    const std::size_t end =
        op.segment_end < 0 ? segments.size() : static_cast<std::size_t>(op.segment_end);
    Times& times = of_stage[op.stage.index()][begin];
    std::int64_t* const which = op.kind == OpKind::Forward         ? &times.forward
                                : op.kind == OpKind::Backward      ? &times.backward
                                : op.kind == OpKind::InputGradient ? &times.input
                                : op.kind == OpKind::Offload       ? &times.out
                                : op.kind == OpKind::Fetch         ? &times.in
                                                                   : nullptr;
    const std::int64_t covered = layers_of(segments.subspan(begin, end - begin));
    if (which == nullptr || covered == 0) continue;
    const bool copy = which == &times.out || which == &times.in;
    *which = std::max(*which, made.duration / (copy ? covered : 1));
  }
  std::vector<std::int32_t> leaving;
  for (std::size_t s = 0; s < of_stage.size(); ++s) {
    const std::vector<SegmentInfo>& segments = draft.schedule.segments[s];
    const std::int64_t layers = layers_of(segments);
    std::int64_t out = 0, in = 0;  // of the dearest layer
    StageCopies stage;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const Times& times = of_stage[s][i];
      stage.forward += times.forward;
      stage.backward += times.input > 0 ? times.input : std::max(times.backward, times.forward);
      out = std::max(out, times.out);
      in = std::max(in, times.in);
    }
    stage.out = out * layers;
    stage.in = in * layers;
    leaving.push_back(leaves_for_nothing(layers, stage));
  }
  return leaving;
}

void offload(RowDraft& row) {
  if (row.plan.offload.activations) offload_activations(row);
  if (row.draft.plan.updates_on_host()) offload_gradients(row);
}

}  // namespace rehearse
