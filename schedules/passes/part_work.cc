// SPDX-License-Identifier: Apache-2.0
// What a part does for every micro-batch alike: bytes, estimated time, parameters it reads,
// gradients it adds to.
#include <algorithm>

#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

// REQUIRES: our executor's bodies.
const BodySizes& body_sizes(const RowDraft& row, const Part& part, const SegmentInfo& segment,
                            Direction direction) {
  const bool apart = reads_kept(direction) && row.draft.placed.of(part.op);
  return row.draft.bodies[RowDraft::slice_of(part.op)][body_kind(row.draft.layout, segment, apart)]
                         [static_cast<std::size_t>(direction)];
}

BodySizes sizes_of(const RowDraft& row, const Part& part, Direction direction) {
  BodySizes sum;
  const auto covered = row.segments(part);
  // Where tensors are kept one by one: their sum, if it goes to the host.
  if (!row.plan.runtime.performer().keeps_slabs) {
    if (!row.plan.offload.activations) return sum;
    for (const SegmentInfo& segment : covered) {
      sum.saved_for_dgrad += row.draft.kept[segment_class(row.draft.layout.model, segment)];
    }
    return sum;
  }
  for (const SegmentInfo& segment : covered) {
    const BodySizes& body = body_sizes(row, part, segment, direction);
    sum.saved_for_dgrad += body.saved_for_dgrad;
    sum.saved_for_wgrad += body.saved_for_wgrad;
    sum.left_for_wgrad += body.left_for_wgrad;
    sum.remade_for_dgrad += body.remade_for_dgrad;
    sum.remade_for_wgrad += body.remade_for_wgrad;
    sum.key_value_gradient += body.key_value_gradient;
    sum.workspace = std::max(sum.workspace, body.workspace);
  }
  const std::int64_t activation = aligned(row.draft.layout.activation_bytes());
  const auto inner = static_cast<std::int64_t>(covered.size()) - 1;
  sum.saved_for_dgrad += inner * activation;  // inputs of the segments after the first
  if (direction == Direction::InputGradient || direction == Direction::WeightGradient) {
    sum.left_for_wgrad += inner * activation;  // gradients between them, which W reads
  } else if (direction == Direction::Backward && inner > 0) {
    // The running gradient lives in the buffer of the op's own gradient, else of the incoming one;
    // a stage that has neither keeps it in the workspace.
    const bool outgoing = part.index > 0 || !row.first_stage(part.op.stage);
    const bool incoming = !part.last() || !row.last_stage(part.op.stage);
    if (!outgoing && !incoming) sum.workspace += activation;
  }
  return sum;
}

// Calls visit(bucket, use) for every gradient that the part adds to. Use 1: a tied table's use by
// the head, where it is kept apart; all else is use 0.
template <class Visit>
void contributions(const RowDraft& row, const Part& part, Visit visit) {
  const OpKind kind = part.op.kind;
  const bool backward =
      kind == OpKind::Backward || kind == OpKind::InputGradient || kind == OpKind::WeightGradient;
  const auto covered = row.segments(part);
  for (std::size_t i = 0; i < covered.size(); ++i) {
    const SegmentBuckets& of = row.buckets(part, row.begin_of(part) + i);
    switch (covered[i].kind) {
      case SegmentKind::Embedding:
        if (kind != OpKind::Backward && kind != OpKind::WeightGradient) break;
        if (of.own) visit(of.own, 0);
        if (of.table) visit(of.table, 0);
        break;
      case SegmentKind::Layer:
        if (backward) visit(of.own, 0);
        if (backward && of.experts) visit(of.experts, 0);
        break;
      case SegmentKind::Head: {
        const bool table = loss_gradient_with_forward(row.plan)
                               ? kind == OpKind::Forward
                               : kind == OpKind::Backward || kind == OpKind::WeightGradient;
        if (table && of.table) visit(of.table, row.one_table_gradient() ? 0 : 1);
        const bool own = kind == OpKind::Backward || kind == OpKind::InputGradient ||
                         (table && !of.table);  // an untied table lies in the head's own bucket
        if (own && of.own) visit(of.own, 0);
        if (backward && of.experts) visit(of.experts, 0);
        break;
      }
    }
  }
}

// Whether what is computed again of the segment multiplies with parameters.
bool reads_again(const RowDraft& row, const Part& part, const SegmentInfo& segment) {
  const Layout& layout = row.draft.layout;
  if (layout.plan.runtime.performer().keeps_slabs) {
    return body_sizes(row, part, segment, Direction::Recompute).reads_parameters;
  }
  return make_body(layout, body_shape(layout, segment, Direction::Recompute, part.op.slice))
      .reads_parameters;
}

// Backwards: a weight gradient reads none. What is computed again lies in layers.
std::vector<BucketId> reads_of(const RowDraft& row, const Part& part) {
  const bool forward = part.op.kind == OpKind::Forward, again = part.op.kind == OpKind::Recompute;
  std::vector<BucketId> list;
  const auto add = [&](BucketId id) {
    if (id && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  const auto covered = row.segments(part);
  for (std::size_t g = covered.size(); g-- > 0;) {
    const SegmentBuckets& of = row.buckets(part, row.begin_of(part) + g);
    if (again && !reads_again(row, part, covered[g])) continue;
    const bool table = forward || !loss_gradient_with_forward(row.plan);
    if (covered[g].kind == SegmentKind::Embedding) {
      if (!forward) continue;  // an embedding's backward reads no parameters
      add(of.own);
      add(of.table);
    } else {
      if (table) add(of.table);
      add(of.experts);
      add(of.own);
    }
  }
  return list;
}

}  // namespace

PartWork part_work(const RowDraft& row, const Part& part) {
  PartWork work;
  const Direction direction = direction_of(part.op.kind);
  if (part.op.kind != OpKind::WeightGradient) work.reads = reads_of(row, part);
  contributions(row, part, [&](BucketId about, int use) {  // several segments may lie in one bucket
    const std::pair add(about, use);
    if (std::find(work.adds.begin(), work.adds.end(), add) == work.adds.end()) {
      work.adds.push_back(add);
    }
  });
  work.sizes = sizes_of(row, part, direction);
  const bool input = is_backward(part.op.kind);
  std::int64_t duration = 0;
  for (const SegmentInfo& segment : row.segments(part)) {
    const bool layer = segment.kind == SegmentKind::Layer;
    duration += row.draft.estimates.of(segment.kind, direction);
    if (layer && input && row.draft.placed.of(part.op)) duration -= row.draft.estimates.layer_again;
    work.has_layers |= layer;
  }
  work.duration = std::max<std::int64_t>(duration, 1);
  return work;
}

}  // namespace rehearse
