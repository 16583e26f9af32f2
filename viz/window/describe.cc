// SPDX-License-Identifier: Apache-2.0
#include "viz/window/describe.h"

#include <algorithm>

#include "schedules/trace/trace_inside.h"
#include "viz/analysis/inside.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/colors.h"

namespace rehearse::viz {
namespace {

// Names of sim::CostLevel, by its numbers.
constexpr std::array<std::string_view, 4> kLevels{"measured", "interpolated", "formula",
                                                  "datasheet"};

std::string signed_percent(double share) {
  return (share >= 0 ? "+" : "") + percent_text(share);
}

}  // namespace

std::vector<Fact> describe_op(const Session& session, OpRef ref, bool deep) {
  const Document& document = session.at(ref.document);
  const Trace& trace = document.trace();
  const std::size_t i = ref.op.index();
  const TraceClass& c = trace.class_of(ref.op);
  const RankClass row = trace.row_of(ref.op);
  const std::int64_t begin = trace.begin.value;
  const std::int64_t duration = trace.end_ns[i] - trace.start_ns[i];
  std::vector<Fact> facts;
  facts.push_back(
      {op_name(trace, ref.op), std::string(style_of(kind_of(c.kind), Theme::Light).name)});
  facts.push_back({"on", row_name(trace, row) + ", " + lane_name(trace, trace.lane_of(ref.op))});
  facts.push_back({"takes", time_text(duration)});
  facts.push_back({"from, to", time_text(trace.start_ns[i] - begin) + ", " +
                                   time_text(trace.end_ns[i] - begin)});
  if (!trace.communicating_ns.empty() && trace.communicating_ns[i] > 0) {
    facts.push_back(
        {"of it waits", time_text(trace.communicating_ns[i]) + " for its own collectives"});
  }
  if (c.bytes > 0) {
    std::string bytes = bytes_text(c.bytes);
    if (duration > 0) {
      bytes += " (" + fixed_text(static_cast<double>(c.bytes) / static_cast<double>(duration), 1) +
               " GB/s)";
    }
    facts.push_back({"moves", bytes});
  }
  if (c.group >= 0) facts.push_back({"group", std::string(trace.text(c.group))});
  if (!trace.cost_level.empty() && trace.cost_level[i] < kLevels.size()) {
    facts.push_back({"its time is", std::string(kLevels[trace.cost_level[i]])});
  }
  if (!trace.expected_start_ns.empty()) {
    facts.push_back({"expected at", time_text(trace.expected_start_ns[i] - begin)});
  }
  if (const OpId same = session.counterpart(ref); session.compares() && same) {
    const Trace& other = session.at(1 - ref.document).trace();
    const std::int64_t there = other.end_ns[same.index()] - other.start_ns[same.index()];
    std::string text = time_text(there);
    if (there > 0) {
      text += " (here " +
              signed_percent(static_cast<double>(duration) / static_cast<double>(there) - 1) + ")";
    }
    facts.push_back({other.label == TraceLabel::Measured ? "measured" : "in the other", text});
  }
  if (!deep) return facts;
  if (const std::vector<NodeLine> nodes = nodes_of(trace, ref.op); !nodes.empty()) {
    std::int32_t count = 0;
    for (const NodeLine& line : nodes) count += line.times;
    facts.push_back({"inside", std::to_string(count) + " kernels and collectives (O)"});
  }
  if (const auto operands = operands_of(trace, ref.op); !operands.empty()) {
    std::int64_t touched = 0;
    for (const TraceOperand& operand : operands)
      touched += trace.values[static_cast<std::size_t>(operand.value)].bytes;
    facts.push_back({"operands", std::to_string(operands.size()) + ", " + bytes_text(touched)});
  }
  OpId last;
  std::int64_t latest = -1;
  const Causality& causes = document.causality();
  causes.for_each_before(causes.node_of(ref.op), [&](OpId op) {
    if (trace.end_ns[op.index()] > latest) {
      latest = trace.end_ns[op.index()];
      last = op;
    }
  });
  if (last) {
    const std::int64_t after = trace.start_ns[i] - latest;
    facts.push_back({"last came", op_name(trace, last) +
                                      (after > 0 ? ", " + time_text(after) + " before" : "")});
  }
  facts.push_back({"slack", time_text(document.critical().slack[i])});
  return facts;
}

std::vector<Fact> describe_idle(const Document& document, std::int32_t idle) {
  const Trace& trace = document.trace();
  const IdleSpan& span = trace.idle[static_cast<std::size_t>(idle)];
  std::vector<Fact> facts{
      {"bubble", std::string(kIdleCauseNames[static_cast<std::size_t>(span.cause)])},
      {"lasts", time_text(span.end - span.begin)}};
  facts.push_back({"ended by", span.op ? op_name(trace, span.op) : std::string("the step's end")});
  return facts;
}

std::vector<Fact> describe_memory(const Trace& trace, RankClass row, std::int64_t since) {
  const std::size_t parts = trace.memory_parts.size();
  const auto first = trace.memory_time.begin() + trace.memory_begin[row.index()];
  const auto last = trace.memory_time.begin() + trace.memory_begin[row.index() + 1];
  if (first == last) return {};
  const auto next = std::upper_bound(first, last, trace.begin.value + since);
  const auto sample =
      static_cast<std::size_t>((next == first ? first : next - 1) - trace.memory_time.begin());
  std::int64_t sum = 0;
  for (std::size_t part = 0; part < parts; ++part) sum += trace.memory_bytes[sample * parts + part];
  const MemoryPeak peak = memory_peak(trace, row);
  std::vector<Fact> facts{{"memory", bytes_text(sum) + " at " + time_text(since)}};
  for (std::size_t part = 0; part < parts; ++part) {
    const std::int64_t now = trace.memory_bytes[sample * parts + part];
    if (now == 0 && peak.parts[part] == 0) continue;
    facts.push_back({trace.memory_parts[part],
                     bytes_text(now) + ", at the peak " + bytes_text(peak.parts[part])});
  }
  facts.push_back(
      {"peak", bytes_text(peak.bytes) + " at " + time_text(peak.time - trace.begin.value)});
  const auto name_largest = [&](std::int64_t time, const std::string& when) {
    const std::vector<std::int32_t> alive = alive_at(trace, row, time);
    constexpr std::size_t kNamed = 4;
    for (std::size_t i = 0; i < std::min(alive.size(), kNamed); ++i) {
      const std::int64_t size = trace.values[static_cast<std::size_t>(alive[i])].bytes;
      facts.push_back(
          {i == 0 ? "largest " + when : "", value_name(trace, alive[i]) + "  " + bytes_text(size)});
    }
    if (alive.size() > kNamed)
      facts.push_back({"", "and " + std::to_string(alive.size() - kNamed) + " more values"});
  };
  name_largest(trace.begin.value + since, "now");
  name_largest(peak.time, "at the peak");
  const std::int64_t capacity = trace.rows[row.index()].capacity_bytes;
  if (capacity > 0) facts.push_back({"capacity", bytes_text(capacity)});
  return facts;
}

std::vector<Fact> describe_link(const Trace& trace, std::size_t link, std::int64_t since) {
  const auto first = trace.link_samples.begin() + trace.link_begin[link];
  const auto last = trace.link_samples.begin() + trace.link_begin[link + 1];
  const auto next = std::upper_bound(
      first, last, trace.begin.value + since,
      [](std::int64_t time, const LinkSample& sample) { return time < sample.time; });
  const double load = next == first ? 0 : (next - 1)->load_ppm / 1e6;
  const LinkUse use = link_use(trace, link);
  std::vector<Fact> facts{{"link", std::string(trace.text(trace.links[link].name))}};
  facts.push_back({"load", percent_text(load) + " at " + time_text(since)});
  facts.push_back({"mean, peak", percent_text(use.mean) + ", " + percent_text(use.peak)});
  if (const std::int64_t rate = trace.links[link].bytes_per_second; rate > 0)
    facts.push_back({"bandwidth", fixed_text(static_cast<double>(rate) / 1e9, 1) + " GB/s"});
  return facts;
}

}  // namespace rehearse::viz
