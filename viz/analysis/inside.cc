// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/inside.h"

#include <algorithm>

#include "schedules/body/sizes.h"

namespace rehearse::viz {
namespace {

std::string with_commas(std::int64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

// What the row's memory curve says at a time; -1: it has none.
std::int64_t curve_at(const Trace& trace, RankClass row, std::int64_t time) {
  if (trace.memory_begin.empty()) return -1;
  const auto first = trace.memory_time.begin() + trace.memory_begin[row.index()];
  const auto last = trace.memory_time.begin() + trace.memory_begin[row.index() + 1];
  const auto next = std::upper_bound(first, last, time);
  if (next == first) return -1;
  const auto sample = static_cast<std::size_t>(next - 1 - trace.memory_time.begin());
  const std::size_t parts = trace.memory_parts.size();
  std::int64_t sum = 0;
  for (std::size_t part = 0; part < parts; ++part) sum += trace.memory_bytes[sample * parts + part];
  return sum;
}

}  // namespace

std::vector<NodeLine> nodes_of(const Trace& trace, OpId op) {
  std::vector<NodeLine> lines;
  if (trace.run_begin.empty()) return lines;
  const auto c = static_cast<std::size_t>(trace.op_class[op.index()]);
  for (std::int32_t r = trace.run_begin[c]; r < trace.run_begin[c + 1]; ++r) {
    const TraceBodyRun& run = trace.runs[static_cast<std::size_t>(r)];
    const TraceBody& body = trace.bodies[static_cast<std::size_t>(run.body)];
    for (std::int32_t node = body.node_begin; node < body.node_end; ++node)
      lines.push_back({.body = run.body, .node = node, .times = run.count});
  }
  return lines;
}

std::string shape_text(const TraceNode& node) {
  if (node.m <= 0 || node.n <= 0 || node.k <= 0) return {};
  std::string text = node.batch > 1 ? with_commas(node.batch) + " × (" : "";
  text += with_commas(node.m) + " × " + with_commas(node.n) + " × " + with_commas(node.k);
  return node.batch > 1 ? text + ")" : text;
}

std::span<const TraceOperand> operands_of(const Trace& trace, OpId op) {
  if (trace.operand_begin.empty()) return {};
  const auto first = static_cast<std::size_t>(trace.operand_begin[op.index()]);
  const auto last = static_cast<std::size_t>(trace.operand_begin[op.index() + 1]);
  return trace.operands.view().subspan(first, last - first);
}

std::vector<std::int32_t> alive_at(const Trace& trace, RankClass row, std::int64_t time) {
  // Memory changes when an op is issued: in program order, no op before the one ahead of it.
  const auto begin = static_cast<std::int32_t>(trace.row_begin[row.index()]);
  const auto end = static_cast<std::int32_t>(trace.row_begin[row.index() + 1]);
  std::int32_t at = begin - 1;
  while (at + 1 < end && trace.start_ns[static_cast<std::size_t>(at) + 1] <= time) ++at;
  std::vector<std::int32_t> alive;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < trace.values.size(); ++i) {
    const TraceValue& value = trace.values[i];
    if (value.row != row || value.home != Home::Device || value.bytes == 0) continue;
    if (value.define && value.define.value > std::max(at, begin)) continue;
    if (value.hold_until && value.hold_until.value < at) continue;
    alive.push_back(static_cast<std::int32_t>(i));
    sum += aligned(value.bytes);
  }
  if (sum != curve_at(trace, row, time)) return {};
  std::ranges::stable_sort(alive, std::greater{}, [&](std::int32_t value) {
    return trace.values[static_cast<std::size_t>(value)].bytes;
  });
  return alive;
}

}  // namespace rehearse::viz
