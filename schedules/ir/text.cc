// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/text.h"

namespace rehearse {
namespace {

std::string_view payload_letter(Payload payload) {
  switch (payload) {
    case Payload::None:
      return "";
    case Payload::Activation:
      return "_F";
    case Payload::Gradient:
      return "_B";
  }
  return "";
}

}  // namespace

std::string kind_text(OpKind kind, Payload payload) {
  return std::string(traits(kind).name).append(payload_letter(payload));
}

std::string to_text(const Op& op) {
  std::string text;
  if (op.stage) text += std::to_string(op.stage.value);
  text += kind_text(op.kind, op.payload);
  if (op.microbatch) text += std::to_string(op.microbatch.value);
  if (op.slice >= 0) text += '.' + std::to_string(op.slice);
  if (op.segment_end >= 0) {
    text += '[' + std::to_string(op.segment_begin);
    if (op.segment_end != op.segment_begin + 1) text += ':' + std::to_string(op.segment_end);
    text += ']';
  }
  return text;
}

std::string to_text(const Schedule& schedule, OpId id) {
  const Op& op = schedule.ops[id.index()];
  if (op.kind == OpKind::Overlap && op.child >= 0) {
    const auto child = static_cast<std::size_t>(op.child);
    return '(' + to_text(schedule.children[child]) + ';' + to_text(schedule.children[child + 1]) +
           ')' + std::string(traits(op.kind).name);
  }
  const bool grouped = op.group && op.group.index() < schedule.groups.size();
  if (grouped && schedule.is_on(op, GroupKind::Other)) {
    return std::to_string(op.instance) + std::string(traits(op.kind).name) + '[' +
           std::string(schedule.group_of(op).name()) + ']';
  }
  std::string text = to_text(op);
  if (op.bucket && op.bucket.index() < schedule.buckets.size()) {
    text += ' ' + schedule.buckets[op.bucket.index()].name;
  }
  return text;
}

std::string row_to_text(const Schedule& schedule, RankClass row) {
  std::string text;
  for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
    if (!text.empty()) text += ' ';
    text += to_text(schedule, OpId{static_cast<std::int32_t>(i)});
  }
  return text;
}

}  // namespace rehearse
