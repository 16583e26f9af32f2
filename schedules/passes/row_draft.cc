// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/row_draft.h"

#include "schedules/scenario/zero/quantized_gather.h"

namespace rehearse {

RowDraft::RowDraft(Draft& of, RankClass at)
    : draft(of),
      s(of.schedule),
      plan(of.plan),
      row(at),
      position(s.rows[at.index()].position),
      slices(std::max(of.order.slices, 1)),
      units(of.order.microbatches * slices),
      first_slot(s.segments.size()),
      replica(s.rows[at.index()].data_begin),
      both_ends(holds({0}) && holds({s.placement.stages() - 1})),
      owner(!of.plan.has_parameter_server() || replica == 0),
      ops(of.ops),
      first_op(of.ops.size()) {
  for (Stage stage{0}; stage.value < s.placement.stages(); ++stage.value) {
    first_slot[stage.index()] = slots;
    if (holds(stage)) slots += static_cast<std::size_t>(units);
  }
  // About: two transfers beside every compute op, one new value each.
  const std::size_t expected =
      3 * of.order.program(RankClass{position.value}).size() + 16 * s.segments.size() + 64;
  values.reserve(expected);
}

OpId RowDraft::last_compute() const {
  OpId last;
  for (std::size_t i = first_op; i < ops.size(); ++i) {
    if (ops[i].op.stream != Stream::Compute || ops[i].at == end()) continue;
    if (!last || ops[i].at >= ops[last.index()].at) last = {static_cast<std::int32_t>(i)};
  }
  return last;
}

ValueId RowDraft::fetch_input(std::int32_t instance, std::int64_t bytes) {
  const ValueId host = value(ValueKind::Input, bytes);
  of(host).home = Home::Host;
  of(host).instance = instance;
  const ValueId device = value(ValueKind::Input, bytes);
  of(device).instance = instance;
  add({.kind = OpKind::Fetch, .stream = Stream::H2d, .instance = instance}, draft.estimates.other,
      start());
  operand(host, Access::Read);
  operand(device, Access::Write);
  return device;
}

namespace {

// Parameters are gathered as they are computed with, gradients travel in the type that the plan has
// for it: over tp what is partial there, and between the replicas or uses of a stage (replicate,
// mirror, embed) what a rank holds after its own group has reduced it.
Carried carried(const Draft& draft, OpKind kind, GroupKind over, BucketId about) {
  if (!about) return {.elements = draft.metrics(), .element_bytes = 8};
  const Bucket& bucket = draft.schedule.buckets[about.index()];
  if (kind == OpKind::Unshard && quantizes_gathers(draft.plan)) {
    const std::int64_t ranks = draft.schedule.group_size(over);
    return {.elements = ranks * quantized_bytes(draft.plan, bucket.padded / ranks, bucket.tensors)};
  }
  if (kind == OpKind::Unshard || kind == OpKind::AllGather || kind == OpKind::Broadcast) {
    return {.elements = bucket.padded,
            .element_bytes = static_cast<std::int32_t>(draft.layout.shape.element)};
  }
  const bool whole =  // summed whole, in fp32, by frameworks that then keep a part
      kind == OpKind::ReduceScatter &&
      draft.plan.runtime.gradient_reduction == GradientReduction::AllReduceFp32;
  const bool held =
      over == GroupKind::Mirror || over == GroupKind::Embedding || over == GroupKind::Replicate;
  return {.elements = over == GroupKind::Tensor ? bucket.partial
                      : held                    ? draft.owned(about)
                                                : bucket.padded,
          .element_bytes = whole ? 4 : draft.plan.gradient_wire_bytes()};
}

}  // namespace

DraftOp& RowDraft::collective(OpKind kind, GroupKind over, Stream stream, BucketId about,
                              std::int32_t at, MatchId match) {
  if (!match) match = draft.new_match();
  draft.carried[match.index()] = carried(draft, kind, over, about);
  DraftOp& made =
      add({.kind = kind, .stream = stream, .group = s.group(over), .match = match, .bucket = about},
          draft.estimates.other, at);
  // Ties: backward order of the buckets, what belongs to none of them last.
  const auto buckets = static_cast<std::int32_t>(s.buckets.size());
  made.tie = about ? buckets - about.value : buckets + 1;
  return made;
}

}  // namespace rehearse
