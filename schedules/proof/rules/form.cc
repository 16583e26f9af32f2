// SPDX-License-Identifier: Apache-2.0
// V1: every index leads somewhere, every number is within what the schedule declares. What others
// would stumble over (an index out of its array) makes the schedule unreadable.
#include <algorithm>

#include "schedules/proof/rules/rules.h"

namespace rehearse {
namespace {

bool ascends_to(const std::vector<std::int32_t>& begin, std::size_t rows, std::size_t end) {
  return begin.size() == rows + 1 && begin.front() == 0 && std::ranges::is_sorted(begin) &&
         static_cast<std::size_t>(begin.back()) == end;
}

template <class Id>
bool inside(Id id, std::size_t size) {
  return id.value >= 0 && static_cast<std::size_t>(id.value) < size;
}

// Arrays and offsets; the ops may be looked at only when these hold.
const char* broken_columns(const Schedule& s) {
  const std::size_t ops = s.ops.size();
  if (s.row_begin.empty() || !ascends_to(s.row_begin, s.row_begin.size() - 1, ops)) {
    return "row_begin does not cut the ops into rows";
  }
  const bool no_waits = s.wait_begin.size() < 2 && s.waits.empty();
  if (!no_waits && !ascends_to(s.wait_begin, ops, s.waits.size())) {
    return "wait_begin does not cut the waits by op";
  }
  if (!s.wait_is_reuse.empty() && s.wait_is_reuse.size() != s.waits.size()) {
    return "wait_is_reuse is not as long as waits";
  }
  const bool no_operands = s.operand_begin.size() < 2 && s.operands.empty();
  if (!no_operands && !ascends_to(s.operand_begin, ops, s.operands.size())) {
    return "operand_begin does not cut the operands by op";
  }
  const auto rows = static_cast<std::size_t>(s.num_rows());
  if (!s.rows.empty() && s.rows.size() != rows) return "rows is not as long as there are rows";
  if (s.rows.empty() && s.num_rows() != s.placement.positions) {
    return "there is not one row for every position";
  }
  if (!s.placement.up.empty() && s.placement.up.size() != s.placement.down.size()) {
    return "the upward placement has another number of stages";
  }
  if (!s.segments.empty() && s.segments.size() != s.placement.down.size()) {
    return "segments is not as long as there are stages";
  }
  for (const auto* column : {&s.arena_bytes, &s.live_peak_bytes, &s.host_bytes, &s.nvme_bytes}) {
    if (!column->empty() && column->size() != rows) return "a column per row has another length";
  }
  return nullptr;
}

// Its rows exist, and of an own group they are whole instances.
bool is_group_there(const Schedule& s, const Group& group) {
  const auto size = static_cast<std::size_t>(std::max(group.size, 1));
  if (group.kind == GroupKind::Other && group.rows.size() % size != 0) return false;
  return std::ranges::all_of(group.rows, [&](RankClass row) {
    return inside(row, static_cast<std::size_t>(s.num_rows()));
  });
}

const char* broken_value(const Schedule& s, const Value& value) {
  if (!inside(value.row, static_cast<std::size_t>(s.num_rows()))) return "lies on no row";
  if (value.bucket && !inside(value.bucket, s.buckets.size())) return "names no bucket";
  for (const OpId op : {value.define, value.last_use, value.hold_until}) {
    if (op && !inside(op, s.ops.size())) return "names no op";
  }
  if (value.bytes.value < 0) return "has negative bytes";
  return nullptr;
}

// What an op's own fields may be. Readable: the rules may follow them; named: they can be printed.
struct OpForm {
  const char* broken = nullptr;
  bool readable = true, named = true;
};
OpForm form_of(const Schedule& s, RankClass row, const Op& op) {
  if (static_cast<std::size_t>(op.kind) >= kNumOpKinds) return {"has no known kind", false, false};
  if (static_cast<std::size_t>(op.stream) >= kNumStreams) return {"has no known stream", false};
  if (op.kind == OpKind::Overlap) {
    if (op.child < 0 || static_cast<std::size_t>(op.child) + 2 > s.children.size()) {
      return {"has no children", false, false};
    }
    for (const Op& child : work_of(s, op)) {
      if (!is_compute(child.kind) || child.kind == OpKind::Overlap) {
        return {"has a child that is not F, B, I or W", false, false};
      }
    }
  }
  if (op.group && !inside(op.group, s.groups.size())) return {"names no group", false};
  if (op.bucket && !inside(op.bucket, s.buckets.size())) return {"names no bucket", false};
  if (op.match.value >= s.num_ops()) return {"has a match beyond the number of ops", false};
  if (op.peer && op.peer.value >= s.placement.positions) {
    return {"names a peer beyond the ranks", false};
  }
  if (!is_transfer(op.kind)) return {};
  if (op.payload == Payload::None) return {"carries neither activation nor gradient"};
  if (op.stream != Stream::P2p && op.stream != Stream::Compute) {
    return {"is neither on the p2p nor on the compute stream"};
  }
  if (s.level == Level::Compute) return {"is a transfer in a compute order"};
  if (op.peer == s.position_of(row)) return {"is addressed to its own position"};
  return {};
}

// Stage, micro-batch, slice and segments of a compute op or transfer.
std::string out_of_range(const Schedule& s, const Op& op) {
  const auto count = [](std::int32_t n) {
    return std::to_string(n) + " (0 ... " + std::to_string(n - 1) + ")";
  };
  const bool by_microbatch = is_transfer(op.kind) || is_compute(op.kind);
  if (op.stage.value >= s.placement.stages() || (by_microbatch && !op.stage)) {
    return "stage " + std::to_string(op.stage.value) + " is out of range: there are " +
           count(s.placement.stages());
  }
  if (op.microbatch.value >= s.microbatches || (by_microbatch && !op.microbatch)) {
    return "micro-batch " + std::to_string(op.microbatch.value) + " is out of range: there are " +
           count(s.microbatches);
  }
  if (op.slice >= s.slices) {
    return "slice " + std::to_string(op.slice) + " is out of range: there are " + count(s.slices);
  }
  if (by_microbatch && s.slices > 1 && op.slice < 0) {
    return "no slice is named: there are " + count(s.slices);
  }
  if (op.stage && !s.segments.empty() && op.segment_end >= 0) {
    const auto segments = static_cast<std::int32_t>(s.segments[op.stage.index()].size());
    if (op.segment_begin < 0 || op.segment_end > segments) {
      return "its part is out of range: stage " + std::to_string(op.stage.value) + " has " +
             std::to_string(segments) + " segments";
    }
  }
  return "";
}

bool within(const Schedule& s, const Op& op) {
  const bool by_microbatch = is_transfer(op.kind) || is_compute(op.kind);
  if (op.stage.value >= s.placement.stages() || op.microbatch.value >= s.microbatches) return false;
  if (op.slice >= s.slices) return false;
  if (by_microbatch && (!op.stage || !op.microbatch || (s.slices > 1 && op.slice < 0)))
    return false;
  if (!op.stage || s.segments.empty() || op.segment_end < 0) return true;
  return op.segment_begin >= 0 &&
         op.segment_end <= static_cast<std::int32_t>(s.segments[op.stage.index()].size());
}

}  // namespace

bool check_form(const Schedule& s, Report& report, bool& readable) {
  if (const char* what = broken_columns(s); what != nullptr) {
    report.add(-1, [&] { return std::string(what); });
    readable = false;
    return true;
  }
  for (const Group& group : s.groups) {
    if (is_group_there(s, group)) continue;
    report.add(-1, [&] {
      return "group " + std::string(group.name()) + " lists rows that are not there";
    });
    readable = false;
  }
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    if (const char* what = broken_value(s, s.values[v]); what != nullptr) {
      report.add(-1, [&] { return "value " + std::to_string(v) + " " + what; });
      readable = false;
    }
  }
  for (const Operand& operand : s.operands) readable &= inside(operand.value, s.values.size());
  for (const OpId wait : s.waits) readable &= inside(wait, s.ops.size());
  if (!readable && report.count() == 0) {
    report.add(-1, [] { return std::string("a wait names no op, or an operand no value"); });
  }
  if (!readable) return true;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    const std::size_t end = s.first_op({row.value + 1});
    for (std::size_t i = s.first_op(row); i < end; ++i) {
      const Op& op = s.ops[i];
      const auto id = static_cast<std::int32_t>(i);
      const OpForm form = form_of(s, row, op);
      if (form.broken != nullptr) {
        readable &= form.readable;
        report.add(id, [&] {
          return (form.named ? where(s, {id}) : "op " + std::to_string(i)) + " " + form.broken;
        });
        continue;
      }
      for (const Op& work : work_of(s, op)) {
        if (within(s, work)) continue;
        report.add(id, [&] { return where(s, {id}) + ": " + out_of_range(s, work); });
      }
      for (const OpId wait : s.waits_of({id})) {
        const bool here = wait.index() >= s.first_op(row) && wait.index() < end;
        const bool implied = s.ops[wait.index()].stream == op.stream && wait.value < id;
        if (here && !implied && wait.value != id) continue;
        report.add(id, [&] {
          return where(s, {id}) + " waits for op " + std::to_string(wait.value) +
                 (here ? ", which is on its own stream: order says it"
                       : ", which is on another row: only a match crosses rows");
        });
      }
    }
  }
  return true;
}

}  // namespace rehearse
