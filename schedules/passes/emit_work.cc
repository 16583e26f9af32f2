// SPDX-License-Identifier: Apache-2.0
// A row's ops cut into parts, and what a part does for every micro-batch alike: bytes, estimated
// time, parameters it reads, gradients it adds to.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {
namespace {

std::int64_t estimated(const Estimates& e, SegmentKind kind, Direction direction) {
  const bool input = direction == Direction::InputGradient;
  const bool weight = direction == Direction::WeightGradient;
  switch (kind) {
    case SegmentKind::Embedding:
      return direction == Direction::Forward ? e.embedding_forward
             : input                         ? 0
                                             : e.embedding_backward;
    case SegmentKind::Layer:
      return direction == Direction::Forward ? e.layer_forward
             : input                         ? e.layer_input
             : weight                        ? e.layer_weight
                                             : e.layer_input + e.layer_weight;
    case SegmentKind::Head:
      return direction == Direction::Forward ? e.head_forward : weight ? 0 : e.head_backward;
  }
  return 1;
}

}  // namespace

BodySizes RowEmitter::sizes_of(const Part& part, Direction direction) const {
  BodySizes sum;
  const auto covered = segments(part);
  if (!rehearse()) {  // a framework keeps tensors: their sum, where it goes to the host
    if (d_.plan.offload != OffloadMode::Activations) return sum;
    for (const SegmentInfo& segment : covered) {
      const bool layer = segment.kind == SegmentKind::Layer;
      const std::size_t shape = segment.kind == SegmentKind::Embedding ? 0
                                : !layer                               ? 3
                                : d_.model.has_experts(segment.layer)  ? 2
                                                                       : 1;
      sum.saved_for_input += d_.kept[shape];
    }
    return sum;
  }
  for (const SegmentInfo& segment : covered) {
    const BodySizes& body = bodies_[slice_of(part.op)][static_cast<std::size_t>(segment.kind)]
                                   [static_cast<std::size_t>(direction)];
    sum.saved_for_input += body.saved_for_input;
    sum.saved_for_weight += body.saved_for_weight;
    sum.left_for_weight += body.left_for_weight;
    sum.key_value_gradient += body.key_value_gradient;
    sum.workspace = std::max(sum.workspace, body.workspace);
  }
  const std::int64_t activation = aligned(activation_);
  const auto inner = static_cast<std::int64_t>(covered.size()) - 1;
  sum.saved_for_input += inner * activation;  // inputs of the segments after the first
  if (direction == Direction::InputGradient || direction == Direction::WeightGradient) {
    sum.left_for_weight += inner * activation;  // gradients between them, which W reads
  } else if (direction == Direction::Backward && inner > 0) {
    // The running gradient lives in the buffer of the op's own gradient, else of the incoming one;
    // a stage that has neither keeps it in the workspace.
    const bool outgoing = part.index > 0 || !first_stage(part.op.stage);
    const bool incoming = !covers_end(part) || !last_stage(part.op.stage);
    if (!outgoing && !incoming) sum.workspace += activation;
  }
  return sum;
}

// Calls visit(bucket, use) for every gradient that the part adds to. Use 1: a tied table's use by
// the head, where it is kept apart; all else is use 0.
template <class Visit>
void RowEmitter::contributions(const Part& part, Visit visit) const {
  const OpKind kind = part.op.kind;
  const bool backward =
      kind == OpKind::Backward || kind == OpKind::InputGradient || kind == OpKind::WeightGradient;
  const auto covered = segments(part);
  for (std::size_t i = 0; i < covered.size(); ++i) {
    const SegmentBuckets& of = buckets(part, begin_of(part) + i);
    switch (covered[i].kind) {
      case SegmentKind::Embedding:
        if (kind != OpKind::Backward && kind != OpKind::WeightGradient) break;
        if (of.own) visit(of.own, 0);
        if (of.table) visit(of.table, 0);
        break;
      case SegmentKind::Layer:
        if (backward) visit(of.own, 0);
        break;
      case SegmentKind::Head: {
        // Our loss computes the table's gradient with the forward, frameworks in the backward.
        const bool table = table_gradient_in_forward()
                               ? kind == OpKind::Forward
                               : kind == OpKind::Backward || kind == OpKind::WeightGradient;
        if (table && of.table) visit(of.table, one_table_gradient() ? 0 : 1);
        const bool own = kind == OpKind::Backward || kind == OpKind::InputGradient ||
                         (table && !of.table);  // an untied table lies in the head's own bucket
        if (own && of.own) visit(of.own, 0);
        break;
      }
    }
  }
}

// Backwards: a weight gradient reads none.
std::vector<BucketId> RowEmitter::reads_of(const Part& part) const {
  const bool forward = part.op.kind == OpKind::Forward;
  std::vector<BucketId> list;
  const auto add = [&](BucketId id) {
    if (id && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  const auto covered = segments(part);
  for (std::size_t g = covered.size(); g-- > 0;) {
    const SegmentBuckets& of = buckets(part, begin_of(part) + g);
    const bool table = forward || !table_gradient_in_forward();
    if (covered[g].kind == SegmentKind::Embedding) {
      if (!forward) continue;  // an embedding's backward reads no parameters
      add(of.own);
      add(of.table);
    } else {
      if (table) add(of.table);
      add(of.own);
    }
  }
  return list;
}

RowEmitter::Work RowEmitter::work_of(const Part& part) const {
  Work work;
  const Direction direction = direction_of(part.op.kind);
  if (part.op.kind != OpKind::WeightGradient) work.reads = reads_of(part);
  contributions(part, [&](BucketId about, int use) {  // several segments may lie in one bucket
    const std::pair add(about, use);
    if (std::find(work.adds.begin(), work.adds.end(), add) == work.adds.end()) {
      work.adds.push_back(add);
    }
  });
  work.sizes = sizes_of(part, direction);
  std::int64_t duration = 0;
  for (const SegmentInfo& segment : segments(part)) {
    duration += estimated(d_.estimates, segment.kind, direction);
    work.has_layers |= segment.kind == SegmentKind::Layer;
  }
  work.duration = std::max<std::int64_t>(duration, 1);
  return work;
}

// Works of an op's parts lie one after another, by the parts' index.
std::size_t RowEmitter::first_work(const Op& op, std::size_t list) {
  const std::size_t key = ((list * s_.segments.size() + op.stage.index()) * kDirections +
                           static_cast<std::size_t>(direction_of(op.kind))) *
                              static_cast<std::size_t>(slices_) +
                          slice_of(op);
  if (works_at_.size() <= key) works_at_.resize(key + 1, -1);
  if (works_at_[key] < 0) {
    works_at_[key] = static_cast<std::int32_t>(works_.size());
    for (std::size_t i = 0; i < cut_lists_[list].size(); ++i) {
      works_.push_back(work_of({.op = op, .index = i}));
    }
  }
  return static_cast<std::size_t>(works_at_[key]);
}

// The row's ops, each divided where `cut` says. OVERLAP pairs stay whole, and so do the ops that
// belong to them.
void RowEmitter::prepare_parts() {
  cuts_.assign(slots_, {});
  alive_.assign(slots_, {});
  const auto program = order_.program(Row{position_.value});
  std::vector<Microbatch> first(s_.segments.size()), last(s_.segments.size());
  std::vector<bool> whole(slots_, false);
  std::vector<std::int32_t> lists(slots_, -1);  // into cut_lists_
  cut_lists_.push_back({0});
  list_at_.assign(s_.segments.size(), {-1, -1, -1, -1});
  const auto each = [&](const Op& op, auto visit) {
    if (op.kind != OpKind::Overlap) return visit(op, false);
    visit(order_.children[static_cast<std::size_t>(op.child)], true);
    visit(order_.children[static_cast<std::size_t>(op.child) + 1], true);
  };
  for (const Op& op : program) {
    each(op, [&](const Op& leaf, bool paired) {
      if (leaf.kind == OpKind::Backward || leaf.kind == OpKind::WeightGradient) {
        last[leaf.stage.index()] = leaf.microbatch;
      } else if (leaf.kind == OpKind::Forward && !first[leaf.stage.index()]) {
        first[leaf.stage.index()] = leaf.microbatch;
      }
      if (paired) whole[slot(leaf)] = true;
    });
  }
  std::size_t alive_count = 0;
  op_begin_.reserve(program.size() + 1);
  parts_.reserve(program.size());
  for (const Op& op : program) {
    op_begin_.push_back(parts_.size());
    each(op, [&](const Op& leaf, bool paired) {
      std::int32_t& list = lists[slot(leaf)];
      if (list < 0) {
        const AtEnds ends{leaf.microbatch == first[leaf.stage.index()],
                          leaf.microbatch == last[leaf.stage.index()]};
        list = whole[slot(leaf)] ? 0 : list_of(leaf.stage, ends);
        cuts_[slot(leaf)] = cut_lists_[static_cast<std::size_t>(list)];
        alive_count += 6 * cuts_[slot(leaf)].size() + 2;
      }
      const std::span<const std::int16_t> cuts = cuts_[slot(leaf)];
      const std::size_t works = first_work(leaf, static_cast<std::size_t>(list));
      const bool forward = leaf.kind == OpKind::Forward;
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        Part part{.op = leaf, .index = forward ? i : cuts.size() - 1 - i};
        part.work = works + part.index;
        if (!paired && cuts.size() > 1) {
          part.op.segment_begin = static_cast<std::int16_t>(begin_of(part));
          part.op.segment_end = static_cast<std::int16_t>(end_of(part));
        }
        parts_.push_back(part);
      }
    });
  }
  op_begin_.push_back(parts_.size());
  alive_values_.assign(alive_count, {});
  std::span<ValueId> rest = alive_values_;
  const auto take = [&rest](std::size_t count) {
    const std::span<ValueId> taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  };
  for (std::size_t k = 0; k < slots_; ++k) {
    const std::size_t parts = cuts_[k].size();
    if (parts == 0) continue;
    alive_[k] = {take(parts + 1), take(parts + 1), take(parts),
                 take(parts),     take(parts),     take(parts)};
  }
}

// Where the op is cut, as a place in cut_lists_: the same for all micro-batches between the first
// and the last.
std::int32_t RowEmitter::list_of(Stage stage, AtEnds microbatch) {
  std::int32_t& list =
      list_at_[stage.index()][(microbatch.first ? 2U : 0U) + (microbatch.last ? 1U : 0U)];
  if (list < 0) list = static_cast<std::int32_t>(interned(cut(d_, position_, stage, microbatch)));
  return list;
}

// Where the one copy of a list that is equal to `cuts` lies.
std::size_t RowEmitter::interned(const std::vector<std::int16_t>& cuts) {
  auto at = std::find(cut_lists_.begin(), cut_lists_.end(), cuts);
  if (at == cut_lists_.end()) at = cut_lists_.insert(cut_lists_.end(), cuts);
  return static_cast<std::size_t>(at - cut_lists_.begin());
}

}  // namespace rehearse
