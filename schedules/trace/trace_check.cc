// SPDX-License-Identifier: Apache-2.0
// What the columns of a trace promise: every offset, index and order, so that nobody who reads one
// checks again.
#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "schedules/trace/trace.h"

namespace rehearse {
namespace {

// Each check returns the first fault as a text, or nothing.
using Fault = std::string;

Fault at(const char* what, std::size_t index, const char* wrong) {
  return std::string(what) + ' ' + std::to_string(index) + ": " + wrong;
}

// offsets: begins at 0, never falls, ends at `total`.
template <class Int>
Fault check_offsets(const char* what, std::span<const Int> offsets, std::size_t count,
                    std::size_t total) {
  if (offsets.size() != count + 1) return std::string(what) + ": wrong number of offsets";
  if (offsets[0] != 0) return std::string(what) + ": offsets do not begin at 0";
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return at(what, i, "offset falls");
  }
  if (static_cast<std::uint64_t>(offsets[count]) != total) {
    return std::string(what) + ": offsets do not end at the column's size";
  }
  return {};
}

// Every number within [low, high): branch-free, so that ten million take milliseconds.
bool within(std::span<const std::int32_t> numbers, std::int32_t low, std::int64_t high) {
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
  for (const std::int32_t number : numbers) {
    least = std::min(least, number);
    most = std::max(most, number);
  }
  return numbers.empty() || (least >= low && most < high);
}

bool is_string(const Trace& trace, TraceString id) {
  return id >= -1 && id < static_cast<std::int64_t>(trace.strings.size());
}

Fault check_tables(const Trace& trace) {
  const auto rows = trace.rows.size();
  if (rows > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 256)) {
    return "too many rows";
  }
  if (trace.slots < 0 || trace.slots > 32767) return "slots out of range";
  if (trace.lanes.size() != rows * static_cast<std::size_t>(trace.slots)) {
    return "lanes: not slots for every row";
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const TraceRow& row = trace.rows[i];
    if (!is_string(trace, row.name)) return at("row", i, "no such name");
    if (row.multiplicity < 1) return at("row", i, "multiplicity below 1");
    if (row.capacity_bytes < 0) return at("row", i, "negative capacity");
  }
  for (std::size_t i = 0; i < trace.lanes.size(); ++i) {
    const TraceLane& lane = trace.lanes[i];
    if (!is_string(trace, lane.name)) return at("lane", i, "no such name");
    if (static_cast<std::size_t>(lane.stream) >= kNumStreams)
      return at("lane", i, "no such stream");
  }
  for (std::size_t i = 0; i < trace.classes.size(); ++i) {
    const TraceClass& c = trace.classes[i];
    const auto kind = [](OpKind k) { return static_cast<std::size_t>(k) < kNumOpKinds; };
    if (!kind(c.kind) || !kind(c.first_kind) || !kind(c.second_kind)) {
      return at("class", i, "no such kind");
    }
    if (static_cast<std::size_t>(c.stream) >= kNumStreams) return at("class", i, "no such stream");
    if (static_cast<std::size_t>(c.payload) > 2) return at("class", i, "no such payload");
    if (c.slot < 0 || c.slot >= trace.slots) return at("class", i, "no such lane");
    if (!is_string(trace, c.group) || !is_string(trace, c.bucket) || !is_string(trace, c.name)) {
      return at("class", i, "no such text");
    }
  }
  return {};
}

Fault check_ops(const Trace& trace) {
  const std::size_t n = trace.start_ns.size();
  for (const std::size_t size : {trace.end_ns.size(), trace.op_class.size(),
                                 trace.microbatch.size(), trace.partner.size()}) {
    if (size != n) return "columns of ops differ in length";
  }
  for (const std::size_t size :
       {trace.cost_level.size(), trace.expected_start_ns.size(), trace.communicating_ns.size()}) {
    if (size != n && size != 0) return "columns of ops differ in length";
  }
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - 1)) {
    return "too many ops";
  }
  if (Fault fault = check_offsets("row_begin", trace.row_begin.view(), trace.rows.size(), n);
      !fault.empty()) {
    return fault;
  }
  if (!within(trace.op_class.view(), 0, static_cast<std::int64_t>(trace.classes.size()))) {
    return "an op of no class";
  }
  if (!within(trace.microbatch.view(), -1, std::numeric_limits<std::int32_t>::max())) {
    return "a micro-batch below -1";
  }
  return {};
}

// Sums of times over all ranks can be counted in 64 bits.
Fault check_sums(const Trace& trace) {
  constexpr double kMost = 0x1p62;
  const double step = static_cast<double>(trace.end.value - trace.begin.value);
  double ranks = 0, waiting = 0;
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    const auto times = static_cast<double>(trace.rows[row].multiplicity);
    ranks += times;
    if (trace.communicating_ns.empty()) continue;
    for (std::int64_t i = trace.row_begin[row]; i < trace.row_begin[row + 1]; ++i) {
      const std::int64_t waits = trace.communicating_ns[static_cast<std::size_t>(i)];
      if (waits < 0) return at("op", static_cast<std::size_t>(i), "waits for less than no time");
      waiting += times * static_cast<double>(waits);
    }
  }
  if (ranks * step > kMost || waiting > kMost) return "the step's times are out of range";
  return {};
}

// Times are ordered, within the step, and no two ops of a lane overlap.
Fault check_times(const Trace& trace) {
  std::vector<std::int16_t> slot_of(trace.classes.size());
  for (std::size_t i = 0; i < slot_of.size(); ++i) slot_of[i] = trace.classes[i].slot;
  std::vector<std::int64_t> free_at(static_cast<std::size_t>(trace.slots));
  const std::int64_t step_begin = trace.begin.value, step_end = trace.end.value;
  if (step_begin < 0 || step_end < step_begin || step_end > (std::int64_t{1} << 50)) {
    return "the step's times are out of range";
  }
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    std::ranges::fill(free_at, step_begin);
    const auto first = static_cast<std::size_t>(trace.row_begin[row]);
    const auto last = static_cast<std::size_t>(trace.row_begin[row + 1]);
    for (std::size_t i = first; i < last; ++i) {
      const std::int64_t start = trace.start_ns[i], end = trace.end_ns[i];
      std::int64_t& free =
          free_at[static_cast<std::size_t>(slot_of[static_cast<std::size_t>(trace.op_class[i])])];
      if (start < free || end < start || end > step_end) {
        if (end < start) return at("op", i, "ends before it starts");
        if (end > step_end || start < step_begin) return at("op", i, "lies outside the step");
        return at("op", i, "starts before the op before it on its lane has ended");
      }
      free = end;
    }
  }
  return {};
}

Fault check_idle(const Trace& trace) {
  if (trace.idle_begin.empty() && trace.idle.empty()) return {};
  if (Fault fault = check_offsets("idle_begin", trace.idle_begin.view(), trace.rows.size(),
                                  trace.idle.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    std::int64_t free = trace.begin.value;
    for (auto i = static_cast<std::size_t>(trace.idle_begin[row]);
         i < static_cast<std::size_t>(trace.idle_begin[row + 1]); ++i) {
      const IdleSpan& span = trace.idle[i];
      if (span.begin < free || span.end < span.begin || span.end > trace.end.value) {
        return at("idle span", i, "overlaps another or lies outside the step");
      }
      if (static_cast<std::size_t>(span.cause) >= kNumIdleCauses) {
        return at("idle span", i, "no such cause");
      }
      if (span.op.value < -1 || span.op.value >= trace.num_ops()) {
        return at("idle span", i, "no such op");
      }
      free = span.end;
    }
  }
  return {};
}

Fault check_samples(const Trace& trace) {
  const std::size_t samples = trace.memory_time.size();
  if (!trace.memory_begin.empty() || samples != 0) {
    if (Fault fault =
            check_offsets("memory_begin", trace.memory_begin.view(), trace.rows.size(), samples);
        !fault.empty()) {
      return fault;
    }
  }
  const std::size_t parts = trace.memory_parts.size();
  if (parts > 64 || trace.memory_bytes.size() != samples * parts) {
    return "memory_bytes: not one number per sample and part";
  }
  for (std::size_t row = 0; row < trace.rows.size() && samples != 0; ++row) {
    for (auto i = static_cast<std::size_t>(trace.memory_begin[row]) + 1;
         i < static_cast<std::size_t>(trace.memory_begin[row + 1]); ++i) {
      if (trace.memory_time[i] < trace.memory_time[i - 1]) {
        return at("memory sample", i, "earlier than the one before it");
      }
    }
  }
  if (trace.link_begin.empty() && trace.links.empty() && trace.link_samples.empty()) return {};
  if (Fault fault = check_offsets("link_begin", trace.link_begin.view(), trace.links.size(),
                                  trace.link_samples.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t link = 0; link < trace.links.size(); ++link) {
    if (!is_string(trace, trace.links[link].name)) return at("link", link, "no such name");
    for (auto i = static_cast<std::size_t>(trace.link_begin[link]) + 1;
         i < static_cast<std::size_t>(trace.link_begin[link + 1]); ++i) {
      if (trace.link_samples[i].time < trace.link_samples[i - 1].time) {
        return at("link sample", i, "earlier than the one before it");
      }
    }
  }
  return {};
}

Fault check_waits(const Trace& trace) {
  if (trace.wait_begin.empty() && trace.waits.empty()) return {};
  if (Fault fault = check_offsets("wait_begin", trace.wait_begin.view(), trace.start_ns.size(),
                                  trace.waits.size());
      !fault.empty()) {
    return fault;
  }
  if (!within(trace.waits.view(), 0, trace.num_ops())) return "a wait for no op";
  return {};
}

Fault check_operands(const Trace& trace) {
  if (trace.operand_begin.empty() && trace.operands.empty()) return {};
  if (Fault fault = check_offsets("operand_begin", trace.operand_begin.view(),
                                  trace.start_ns.size(), trace.operands.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t i = 0; i < trace.operands.size(); ++i) {
    const TraceOperand& operand = trace.operands[i];
    if (operand.value < 0 || static_cast<std::size_t>(operand.value) >= trace.values.size()) {
      return at("operand", i, "no such value");
    }
    if (static_cast<std::size_t>(operand.access) > static_cast<std::size_t>(Access::Workspace)) {
      return at("operand", i, "no such access");
    }
  }
  const auto is_op = [&](OpId id) { return id.value >= -1 && id.value < trace.num_ops(); };
  for (std::size_t i = 0; i < trace.values.size(); ++i) {
    const TraceValue& value = trace.values[i];
    if (static_cast<std::size_t>(value.kind) >= kNumValueKinds ||
        static_cast<std::size_t>(value.home) >= kNumHomes) {
      return at("value", i, "no such kind");
    }
    if (value.row.value < 0 || value.row.value >= trace.num_rows()) {
      return at("value", i, "no such row");
    }
    if (!is_string(trace, value.bucket)) return at("value", i, "no such text");
    if (!is_op(value.define) || !is_op(value.last_use) || !is_op(value.hold_until)) {
      return at("value", i, "no such op");
    }
    if (value.bytes < 0) return at("value", i, "negative size");
  }
  return {};
}

Fault check_nodes(const Trace& trace) {
  if (trace.run_begin.empty() && trace.runs.empty()) return {};
  if (Fault fault = check_offsets("run_begin", trace.run_begin.view(), trace.classes.size(),
                                  trace.runs.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t i = 0; i < trace.runs.size(); ++i) {
    const TraceBodyRun& run = trace.runs[i];
    if (run.body < 0 || static_cast<std::size_t>(run.body) >= trace.bodies.size() ||
        run.count < 1) {
      return at("run of bodies", i, "no such body");
    }
  }
  for (std::size_t i = 0; i < trace.bodies.size(); ++i) {
    const TraceBody& body = trace.bodies[i];
    if (!is_string(trace, body.name)) return at("body", i, "no such text");
    if (body.node_begin < 0 || body.node_end < body.node_begin ||
        static_cast<std::size_t>(body.node_end) > trace.nodes.size()) {
      return at("body", i, "no such nodes");
    }
  }
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    if (!is_string(trace, trace.nodes[i].name)) return at("node", i, "no such text");
  }
  const auto nodes = static_cast<std::int32_t>(trace.nodes.size());
  std::int32_t last = -1;
  for (std::size_t i = 0; i < trace.meetings.size(); ++i) {
    const TraceMeeting& meeting = trace.meetings[i];
    if (meeting.node <= last || meeting.node >= nodes || meeting.until > nodes ||
        (meeting.until >= 0 && meeting.until <= meeting.node)) {
      return at("meeting", i, "no such nodes");
    }
    if (static_cast<std::size_t>(meeting.kind) >= kNumOpKinds ||
        static_cast<std::size_t>(meeting.group) >= kNumGroupKinds) {
      return at("meeting", i, "no such collective");
    }
    last = meeting.node;
  }
  return {};
}

// Rows of one class are of one size, and there are no more classes than rows.
Fault check_row_class(const Trace& trace) {
  const auto& of = trace.row_class;
  if (of.empty()) return {};
  if (of.size() != trace.rows.size()) return "row_class: not one number for every row";
  if (!within(of.view(), 0, trace.num_rows())) return "a row of no class";
  std::vector<std::int64_t> ops(of.size(), -1);
  for (std::size_t row = 0; row < of.size(); ++row) {
    std::int64_t& known = ops[static_cast<std::size_t>(of[row])];
    const std::int64_t mine = trace.row_begin[row + 1] - trace.row_begin[row];
    if (known >= 0 && known != mine) return at("row", row, "has other ops than those of its class");
    known = mine;
  }
  return {};
}

Fault check_resident(const Trace& trace) {
  const auto& bytes = trace.resident_bytes;
  if (!bytes.empty() && (bytes.size() != 2 || bytes[0] < 0 || bytes[1] < 0))
    return "resident memory is not two numbers of bytes";
  return {};
}

Fault check_experts(const Trace& trace) {
  const auto& shape = trace.expert_shape;
  const auto ascends = [](const Column<std::int32_t>& numbers) {
    return !numbers.empty() && numbers[0] >= 0 &&
           std::ranges::adjacent_find(numbers, std::greater_equal{}) == numbers.end();
  };
  if (shape.empty() && trace.expert_rows.empty()) return {};
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] % shape[1] != 0) {
    return "experts: their number is not one that their ranks divide";
  }
  if (!ascends(trace.expert_layers)) return "experts: layers do not ascend";
  if (!ascends(trace.expert_steps)) return "experts: steps do not ascend";
  const std::size_t cells = trace.expert_layers.size() * trace.expert_steps.size();
  if (trace.expert_rows.size() / cells != static_cast<std::size_t>(shape[0]) ||
      trace.expert_rows.size() % cells != 0) {
    return "experts: not a number of rows for every step, layer and expert";
  }
  if (std::ranges::any_of(trace.expert_rows, [](std::int64_t rows) { return rows < 0; })) {
    return "experts: less than no rows";
  }
  return {};
}

}  // namespace

std::string trace_fault(const Trace& trace) {
  for (const auto check :
       {check_tables, check_ops, check_times, check_sums, check_idle, check_samples, check_waits,
        check_operands, check_nodes, check_resident, check_row_class, check_experts}) {
    if (Fault fault = check(trace); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace rehearse
