// SPDX-License-Identifier: Apache-2.0
#include "schedules/proof/rules/survey.h"

#include <algorithm>

namespace rehearse {
namespace {

std::vector<std::int16_t> segments_of(const Schedule& schedule) {
  std::vector<std::int16_t> count(static_cast<std::size_t>(schedule.placement.stages()), 1);
  for (std::size_t s = 0; s < schedule.segments.size(); ++s) {
    count[s] = static_cast<std::int16_t>(std::max<std::size_t>(1, schedule.segments[s].size()));
  }
  if (!schedule.segments.empty()) return count;
  for (const Op& op : schedule.ops) {  // without a model: as far as any part reaches
    if (!is_compute(op.kind) || op.segment_end < 0 || op.stage.index() >= count.size()) continue;
    count[op.stage.index()] = std::max(count[op.stage.index()], op.segment_end);
  }
  return count;
}

// Walks one row after the other; micro-batches of one row only, so rows may be looked at alone.
class Walker {
 public:
  Walker(const Schedule& schedule, const StageIndex& index, Survey& survey)
      : schedule_(schedule), index_(index), survey_(survey) {}

  void row(RankClass row) {
    data_class_ = index_.class_of(row);
    const Position here = schedule_.position_of(row);
    begin_ = static_cast<std::int32_t>(schedule_.first_op(row));
    end_ = static_cast<std::int32_t>(schedule_.first_op({row.value + 1}));
    for (id_ = begin_; id_ < end_; ++id_) {
      const Op& op = schedule_.ops[static_cast<std::size_t>(id_)];
      if (is_transfer(op.kind)) {
        if (!index_.holds(op)) continue;
        if (home(op) != here) find(Fault::Elsewhere, op);
        if (op.kind == OpKind::Send) send(op);
      } else if (is_compute(op.kind)) {
        for (const Op& work : work_of(schedule_, op)) {
          if (!index_.holds(work)) continue;
          if (home(work) != here) find(Fault::Elsewhere, work);
          compute(work);
        }
      }
    }
  }

 private:
  void find(Fault fault, const Op& work, std::int32_t other = -1) {
    survey_.findings.push_back({fault, id_, other, work});
  }

  Position home(const Op& work) const {
    return schedule_.placement.position(work.stage, work.microbatch);
  }

  void send(const Op& op) {
    const std::int32_t source = index_.source(data_class_, op);
    if (source > id_ && source < end_) find(Fault::SendBeforeSource, op, source);
  }

  void compute(const Op& work) {
    const std::size_t key = index_.key(data_class_, work);
    Progress& progress = survey_.progress[key];
    const std::int16_t all = survey_.segments[work.stage.index()];
    const bool whole = work.segment_end < 0;
    const auto begin = whole ? std::int16_t{0} : work.segment_begin;
    const auto end = whole ? all : std::min(work.segment_end, all);
    const StageOps& ops = index_.at(key);
    switch (work.kind) {
      case OpKind::Forward:
        if (begin < progress.forward) return find(Fault::Twice, work, ops.forward_first);
        if (begin > progress.forward) find(Fault::PartOrder, work);
        if (begin == 0) arrival(work);
        slice_before(work, key, -1);
        progress.forward = end;
        return;
      case OpKind::Backward:
      case OpKind::InputGradient: {
        const bool fused = work.kind == OpKind::Backward;
        if (fused ? progress.split : progress.whole) find(Fault::BothForms, work);
        (fused ? progress.whole : progress.split) = true;
        if (progress.backward < 0) progress.backward = all;
        if (end > progress.backward) return find(Fault::Twice, work, ops.backward_first);
        if (progress.forward < all) find(Fault::BeforeForward, work, ops.forward_last);
        if (end < progress.backward) find(Fault::PartOrder, work);
        if (end == all) arrival(work);
        slice_before(work, key, 1);
        progress.backward = begin;
        return;
      }
      case OpKind::WeightGradient:
        if (progress.whole) find(Fault::BothForms, work);
        progress.split = true;
        progress.weight = static_cast<std::int16_t>(progress.weight + end - begin);
        if (progress.weight > all) return find(Fault::Twice, work, ops.weight_first);
        if (progress.backward < 0 || progress.backward > begin) {
          find(Fault::WeightBeforeInput, work, ops.backward_last);
        }
        return;
      case OpKind::Recompute:
        if (begin < progress.recomputed) return find(Fault::Twice, work);
        if (begin > progress.recomputed) find(Fault::PartOrder, work);
        if (progress.forward < all) find(Fault::BeforeForward, work, ops.forward_last);
        if (progress.backward >= 0 && progress.backward < end) {
          find(Fault::RecomputeLate, work, ops.backward_first);
        }
        progress.recomputed = end;
        return;
      default:
        return;
    }
  }

  // What brings or makes its input stands later in the same row.
  void arrival(const Op& work) {
    const std::int32_t recv = index_.arrival(data_class_, work);
    if (recv > id_ && recv < end_) find(Fault::BeforeArrival, work, recv);
    const std::int32_t producer = index_.producer(data_class_, work);
    if (producer > id_ && producer < end_) find(Fault::BeforeProducer, work, producer);
  }

  // A causal slice needs keys and values of the earlier ones, a backward the gradients of later.
  void slice_before(const Op& work, std::size_t key, std::int32_t step) {
    const std::int32_t other = work.slice + step;
    if (index_.slices() == 1 || other < 0 || other >= index_.slices()) return;
    const Progress& before = survey_.progress[key + static_cast<std::size_t>(step)];
    const bool there =
        step < 0 ? before.forward == survey_.segments[work.stage.index()] : before.backward == 0;
    if (!there) find(Fault::SliceOrder, work);
  }

  const Schedule& schedule_;
  const StageIndex& index_;
  Survey& survey_;
  std::int32_t data_class_ = 0, begin_ = 0, end_ = 0, id_ = 0;
};

}  // namespace

Survey::Survey(const Schedule& schedule, const StageIndex& index)
    : progress(index.size()), segments(segments_of(schedule)) {
  Walker walker(schedule, index, *this);
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) walker.row(row);
}

}  // namespace rehearse
