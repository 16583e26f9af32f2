// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/listing.h"

#include <array>

#include "schedules/ir/payload.h"
#include "schedules/ir/text.h"

namespace rehearse {
namespace {

std::string number(std::int32_t n) {
  return std::to_string(n);
}

std::string part_of(const Value& value) {
  if (value.segment_end < 0) return {};
  std::string text = '[' + number(value.segment_begin);
  if (value.segment_end != value.segment_begin + 1) text += ':' + number(value.segment_end);
  return text + ']';
}

void append_padded(std::string& line, const std::string& text, std::size_t width) {
  const std::size_t end = line.size() + width;
  line += text;
  if (line.size() < end) line.resize(end, ' ');
}

constexpr std::array<char, kNumStreams> kStreamLetters{'c', 'p', 'd', 'h', 'o'};

void append(std::string& list, const std::string& item) {
  if (!list.empty()) list += ' ';
  list += item;
}

// "F0.1": the activation of stage 0 for micro-batch 1, whichever end the op is.
std::string transfer_id(const Op& op) {
  const bool gradient = op.payload == Payload::Gradient;
  const std::int32_t sender = op.kind == OpKind::Send ? op.stage.value
                              : gradient              ? op.stage.value + 1
                                                      : op.stage.value - 1;
  return (gradient ? "B" : "F") + number(sender) + '.' + number(op.microbatch.value);
}

}  // namespace

std::string value_name(const Schedule& schedule, ValueId id) {
  const Value& value = schedule.values[id.index()];
  const std::string bucket = value.bucket ? schedule.buckets[value.bucket.index()].name : "";
  return value_name(value, bucket, schedule.slices > 1);
}

std::string value_name(const Value& value, const std::string& of, bool sliced) {
  const std::string slice = sliced ? '.' + number(value.instance) : "";
  const std::string at = number(value.stage.value) + '.' + number(value.microbatch.value) + slice;
  const std::string boundary = value.segment_begin > 0 ? '/' + number(value.segment_begin) : "";
  constexpr std::array<std::string_view, kNumHomes> kHomes{"", ".host", ".nvme"};
  const std::string host(kHomes[static_cast<std::size_t>(value.home)]);
  switch (value.kind) {
    case ValueKind::Input:
      return "tokens" + host;
    case ValueKind::Activation:
      return 'x' + at + boundary + host;
    case ValueKind::ActivationGradient:
      return 'd' + at + boundary;
    case ValueKind::SavedForDgrad:
      return "sI" + at + part_of(value) + host;
    case ValueKind::SavedForWgrad:
      return "sW" + at + part_of(value) + host;
    case ValueKind::LeftForWgrad:
      return "lW" + at + part_of(value);
    case ValueKind::RemadeForDgrad:
      return "rI" + at + part_of(value);
    case ValueKind::RemadeForWgrad:
      return "rW" + at + part_of(value);
    case ValueKind::KeyValueGradient:
      return "dkv" + at + part_of(value);
    case ValueKind::Workspace:
      return "w";
    case ValueKind::Gradient: {
      const std::string use = value.instance == 1 ? "'" : "";
      if (!value.microbatch) return "G." + of + use + host;
      return (value.shard ? "h." : "g.") + of + use + '.' + number(value.microbatch.value);
    }
    case ValueKind::FullParameter:
      return value.instance < 0 ? "P." + of + host : "F." + of + '#' + number(value.instance);
    case ValueKind::ParameterShard:
      return "p." + of + host;
    case ValueKind::OptimizerState:
      return "S." + of + host;
    case ValueKind::Metrics:
      return value.instance == 0 ? "norms" + host : "loss";
  }
  return {};
}

std::string op_label(const Schedule& schedule, OpId id) {
  const Op& op = schedule.ops[id.index()];
  const auto operands = schedule.operands_of(id);
  const std::string kind(traits(op.kind).name);
  switch (traits(op.kind).op_class) {
    case OpClass::Compute:
    case OpClass::Transfer:
      return to_text(schedule, id);
    default:
      break;
  }
  if (operands.empty() || schedule.is_on(op, GroupKind::Other)) return to_text(schedule, id);
  switch (op.kind) {
    case OpKind::Fetch:
      if (schedule.values[operands[0].value.index()].kind == ValueKind::Input) {
        return kind + (op.instance == 1 ? " targets" : " tokens");
      }
      return kind + ' ' + value_name(schedule, operands[1].value);
    case OpKind::GradNorm:
      return kind;
    case OpKind::OptimizerStep:
      return kind + ' ' + schedule.buckets[op.bucket.index()].name;
    case OpKind::Unshard:
      return kind + ' ' + schedule.buckets[op.bucket.index()].name + " #" + number(op.instance);
    case OpKind::Add:
      return kind + ' ' + value_name(schedule, operands[1].value) +
             " += " + value_name(schedule, operands[0].value);
    default:
      break;
  }
  std::string label = kind + ' ' + value_name(schedule, operands[0].value);
  if (schedule.is_on(op, GroupKind::Tensor) && op.bucket) {
    label += '<' + std::to_string(payload_of(schedule, id).elements) + '>';
  }
  return label;
}

std::string listing(const Schedule& schedule, RankClass row) {
  std::string text;
  const std::int32_t first = schedule.row_begin[row.index()];
  for (std::int32_t i = first; i < schedule.row_begin[row.index() + 1]; ++i) {
    const OpId id{i};
    const Op& op = schedule.ops[id.index()];
    std::string in, out, last;
    for (const Operand& operand : schedule.operands_of(id)) {
      const std::string name = value_name(schedule, operand.value);
      const bool update = operand.access == Access::Update;
      append(operand.access == Access::Read || update ? in : out, (update ? "&" : "") + name);
      if (!operand.last || operand.access == Access::Workspace) continue;
      const Value& value = schedule.values[operand.value.index()];
      if (value.home != Home::Device) continue;
      append(last, name);
      if (value.hold_until.value > i)
        last += " (to " + number(value.hold_until.value - first) + ')';
    }
    std::string line = number(i - first);
    line.insert(0, 3 - std::min<std::size_t>(line.size(), 3), ' ');
    line += ' ';
    line += kStreamLetters[static_cast<std::size_t>(op.stream)];
    line += ' ';
    append_padded(line, op_label(schedule, id), 27);
    line += ' ' + in;
    if (!out.empty()) line += " -> " + out;
    std::string notes;
    if (traits(op.kind).op_class == OpClass::Transfer) {
      notes += " | pp[" + number(op.peer.value) + "] " + transfer_id(op);
    } else if (op.group) {
      notes += " | " + std::string(schedule.group_of(op).name());
    }
    if (!last.empty()) notes += " | last " + last;
    const auto waits = schedule.waits_of(id);
    if (!waits.empty()) notes += " | wait";
    for (std::size_t w = 0; w < waits.size(); ++w) {
      const auto at = static_cast<std::size_t>(schedule.wait_begin[id.index()]) + w;
      notes += ' ' + number(waits[w].value - first) + (schedule.wait_is_reuse[at] != 0 ? "*" : "");
    }
    if (!notes.empty()) line += "  " + notes;
    text += line + '\n';
  }
  return text;
}

}  // namespace rehearse
