// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/stage_index.h"

#include <algorithm>

namespace rehearse {
namespace {

void extend(std::int32_t& first, std::int32_t& last, std::int32_t id) {
  if (first < 0) first = id;
  last = id;
}

void keep_first(std::int32_t& slot, std::int32_t id) {
  if (slot < 0) slot = id;
}

void enter(StageOps& ops, const Op& work, std::int32_t id) {
  const bool gradient = work.payload == Payload::Gradient;
  switch (work.kind) {
    case OpKind::Forward:
      return extend(ops.forward_first, ops.forward_last, id);
    case OpKind::Backward:
    case OpKind::InputGradient:
      return extend(ops.backward_first, ops.backward_last, id);
    case OpKind::WeightGradient:
      return keep_first(ops.weight_first, id);
    case OpKind::Send:
      return keep_first(gradient ? ops.send_gradient : ops.send_activation, id);
    case OpKind::Recv:
      return keep_first(gradient ? ops.recv_gradient : ops.recv_activation, id);
    default:
      return;
  }
}

}  // namespace

StageIndex::StageIndex(const Schedule& schedule)
    : stages_(schedule.placement.stages()),
      microbatches_(std::max(schedule.microbatches, 0)),
      slices_(std::max(schedule.slices, 1)) {
  std::vector<std::int32_t> begins;
  for (const RankClassInfo& row : schedule.rows) {
    const auto known = std::ranges::find(begins, row.data_begin);
    class_of_row_.push_back(static_cast<std::int32_t>(known - begins.begin()));
    if (known == begins.end()) begins.push_back(row.data_begin);
  }
  classes_ = std::max<std::int32_t>(1, static_cast<std::int32_t>(begins.size()));
  table_.resize(static_cast<std::size_t>(classes_) * static_cast<std::size_t>(stages_) *
                stage_stride());
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::int32_t data_class = class_of(row);
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      has_[static_cast<std::size_t>(schedule.ops[i].kind)] = true;
      for (const Op& work : work_of(schedule, schedule.ops[i])) {
        if (!is_compute(work.kind) && !is_transfer(work.kind)) continue;
        if (holds(work)) enter(table_[key(data_class, work)], work, static_cast<std::int32_t>(i));
      }
    }
  }
}

std::int32_t StageIndex::producer(std::int32_t data_class, const Op& work) const {
  if (!holds(work)) return -1;
  const std::size_t own = key(data_class, work);
  if (work.kind == OpKind::Forward) {
    return work.stage.value == 0 ? -1 : table_[own - stage_stride()].forward_last;
  }
  if (is_backward(work.kind)) {
    return work.stage.value + 1 == stages_ ? -1 : table_[own + stage_stride()].backward_last;
  }
  return -1;
}

std::int32_t StageIndex::arrival(std::int32_t data_class, const Op& work) const {
  if (!holds(work)) return -1;
  const StageOps& own = table_[key(data_class, work)];
  if (work.kind == OpKind::Forward) return own.recv_activation;
  return is_backward(work.kind) ? own.recv_gradient : -1;
}

std::int32_t StageIndex::source(std::int32_t data_class, const Op& send) const {
  if (!holds(send)) return -1;
  const StageOps& own = table_[key(data_class, send)];
  return send.payload == Payload::Gradient ? own.backward_last : own.forward_last;
}

std::int32_t StageIndex::first_of(std::int32_t data_class, const Op& transfer) const {
  if (!holds(transfer)) return -1;
  const StageOps& own = table_[key(data_class, transfer)];
  const bool gradient = transfer.payload == Payload::Gradient;
  if (transfer.kind == OpKind::Send) return gradient ? own.send_gradient : own.send_activation;
  return gradient ? own.recv_gradient : own.recv_activation;
}

std::int32_t StageIndex::partner(std::int32_t data_class, const Op& transfer) const {
  if (!holds(transfer)) return -1;
  const bool gradient = transfer.payload == Payload::Gradient;
  const bool up = gradient == (transfer.kind == OpKind::Recv);  // towards the next stage
  if (transfer.stage.value + (up ? 1 : -1) < 0) return -1;
  if (transfer.stage.value + (up ? 1 : -1) >= stages_) return -1;
  const std::size_t own = key(data_class, transfer);
  const StageOps& other = table_[up ? own + stage_stride() : own - stage_stride()];
  if (transfer.kind == OpKind::Send) return gradient ? other.recv_gradient : other.recv_activation;
  return gradient ? other.send_gradient : other.send_activation;
}

}  // namespace rehearse
