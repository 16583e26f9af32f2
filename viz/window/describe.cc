// SPDX-License-Identifier: Apache-2.0
#include "viz/window/describe.h"

#include <algorithm>
#include <numeric>

#include "schedules/trace/trace_inside.h"
#include "viz/analysis/inside.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/colors.h"
#include "viz/picture/two/paint_lag.h"

namespace rehearse::viz {
namespace {

std::string signed_percent(double share) {
  return (share >= 0 ? "+" : "") + percent_text(share);
}

// "1B3 on rank 128 (x128)"; of the row's own ops without the place.
std::string wait_text(const Trace& trace, const Wait& wait, RankClass row) {
  const RankClass other = trace.row_of(wait.source);
  return op_name(trace, wait.source) + (other == row ? "" : " on " + row_name(trace, other));
}

// "step 20.9 s, -3.20 ms"
std::string step_text(const Trace& trace, std::int64_t step) {
  const std::int64_t change = step - trace.step().value;
  return "step " + time_text(step) +
         (change == 0 ? ", no change"
                      : ", " + std::string(change > 0 ? "+" : "") + time_text(change));
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
  const std::int64_t digits =
      nice_step(static_cast<double>(duration) / 20);  // they differ in these
  facts.push_back({"from, to", tick_text(trace.start_ns[i] - begin, digits) + ", " +
                                   tick_text(trace.end_ns[i] - begin, digits)});
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
  if (!trace.cost_level.empty() && trace.cost_level[i] < kCostLevelNames.size()) {
    facts.push_back({"its time is", std::string(kCostLevelNames[trace.cost_level[i]])});
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
  const Wait wait = waited_for(trace, document.causality(), ref.op);
  if (wait.source) facts.push_back({"waited for", wait_text(trace, wait, row)});
  facts.push_back({"slack", time_text(document.critical().slack[i])});
  if (const std::optional<WhatIf> if_shorter = document.what_if(ref.op)) {
    facts.push_back({"20 % shorter", step_text(trace, if_shorter->alone)});
    facts.push_back({"all like it", step_text(trace, if_shorter->alike)});
  }
  return facts;
}

std::vector<Fact> describe_bubble(const Document& document, std::int32_t idle) {
  const Trace& trace = document.trace();
  const Bubble bubble = bubble_at(trace, document.causality(), idle);
  const std::int64_t whole = bubble.end - bubble.begin;
  std::vector<Fact> facts{
      {"bubble", time_text(whole) + " on " + row_name(trace, bubble.row)},
      {"ended by", bubble.op ? op_name(trace, bubble.op) : std::string("the step's end")}};
  std::array<std::size_t, kNumIdleCauses> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t cause) { return bubble.causes[cause]; });
  for (const std::size_t cause : order) {
    if (bubble.causes[cause] == 0) continue;
    facts.push_back({std::string(kIdleCauseNames[cause]),
                     time_text(bubble.causes[cause]) +
                         (bubble.causes[cause] == whole
                              ? std::string(", all of it")
                              : ", " + percent_text(static_cast<double>(bubble.causes[cause]) /
                                                    static_cast<double>(whole)))});
  }
  if (bubble.wait.source) facts.push_back({"waits for", wait_text(trace, bubble.wait, bubble.row)});
  if (bubble.wait.via) facts.push_back({"through", op_name(trace, bubble.wait.via)});
  return facts;
}

std::string alignment_words(const Session& session, const Alignment& alignment) {
  if (alignment.how == Align::Wall) return "on one clock";
  if (alignment.how == Align::Step || !alignment.op) return "steps begin together";
  const Trace& second = session.at(1).trace();
  return op_name(second, alignment.op) + " begins together, on " +
         row_name(second, second.row_of(alignment.op));
}

std::vector<Fact> describe_lag(const Session& session, const Alignment& alignment, RankClass row,
                               std::int64_t time) {
  const Trace& second = session.at(1).trace();
  const LagCurve& lag = session.lag(row.value);
  if (lag.empty()) return {};
  const std::int64_t origin = session.origin(1, alignment), shift = second.begin.value - origin;
  const auto words = [](std::int64_t ns) {
    return ns == 0 ? "level" : time_text(std::abs(ns)) + (ns > 0 ? " behind" : " ahead");
  };
  const std::int64_t here = lag.at(time) + shift;
  return {{"the second trace is", words(here)},
          {"at", time_text(time - origin)},
          {"on", row_name(second, row)},
          {"over the step",
           lag_text(lag.whole().least + shift) + " to " + lag_text(lag.whole().most + shift)}};
}

std::vector<Fact> describe_cell(const Session& session, const HeatCell& cell) {
  const Document& document = session.at(cell.document);
  const Trace& trace = document.trace();
  const bool excess = cell.of == kHeatExcess;
  const auto share = [&](double of) { return excess ? signed_percent(of) : percent_text(of); };
  const std::int64_t ranks = cell.ranks.last - cell.ranks.first;
  std::vector<Fact> facts{
      {document.heat().ranks_text(cell.ranks.first, cell.ranks.last),
       time_text(cell.begin - trace.begin.value) + " to " +
           time_text(cell.end - trace.begin.value)},
      {excess ? "over the median" : std::string(heat_name(cell.of)),
       share(cell.mean) + (ranks > 1 ? " of the " + std::to_string(ranks) + " ranks' time"
                                     : std::string(" of the time"))}};
  if (ranks > 1)
    facts.push_back({"worst", row_name(trace, {cell.worst_row}) + ": " + share(cell.most)});
  const OpId op = op_at(document.index(), cell.worst_row * trace.slots, cell.time);
  if (op) {
    facts.push_back({ranks > 1 ? "which runs" : "runs", op_name(trace, op)});
  } else if (const std::int32_t idle = idle_at(document.index(), cell.worst_row, cell.time);
             idle >= 0) {
    const IdleSpan& span = trace.idle[static_cast<std::size_t>(idle)];
    facts.push_back({ranks > 1 ? "which waits" : "waits",
                     std::string(kIdleCauseNames[static_cast<std::size_t>(span.cause)]) +
                         (span.op ? ", for " + op_name(trace, span.op) + " to begin" : "")});
  }
  return facts;
}

std::vector<Fact> describe_memory(const Document& document, RankClass row, std::int64_t since) {
  const Trace& trace = document.trace();
  const MemoryCurve& curve = document.memory(row.value);
  const std::size_t parts = trace.memory_parts.size();
  if (curve.at(trace.begin.value + since) < 0) return {};
  const auto sample = static_cast<std::size_t>(curve.at(trace.begin.value + since));
  const MemoryPeak& peak = curve.peak();
  // One unit for all: the peak's.
  const auto bytes = [&](std::int64_t value) { return bytes_text(value, peak.bytes); };
  std::vector<Fact> facts{{"memory", bytes(curve.sum(curve.at(trace.begin.value + since))) +
                                         " at " + time_text(since)}};
  for (std::size_t part = 0; part < parts; ++part) {
    const std::int64_t now = trace.memory_bytes[sample * parts + part];
    if (now == 0 && peak.parts[part] == 0) continue;
    facts.push_back(
        {trace.memory_parts[part], bytes(now) + ", at the peak " + bytes(peak.parts[part])});
  }
  facts.push_back({"peak", bytes(peak.bytes) + " at " + time_text(peak.time - trace.begin.value)});
  const auto name_largest = [&](std::int64_t time, const std::string& when) {
    const std::vector<std::int32_t> alive = alive_at(trace, row, time);
    constexpr std::size_t kNamed = 4;
    for (std::size_t i = 0; i < std::min(alive.size(), kNamed); ++i) {
      const std::int64_t size = trace.values[static_cast<std::size_t>(alive[i])].bytes;
      facts.push_back(
          {i == 0 ? "largest " + when : "", value_name(trace, alive[i]) + "  " + bytes(size)});
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

std::vector<Fact> describe_link(const Document& document, std::int32_t link, std::int64_t since) {
  const Trace& trace = document.trace();
  const TraceLink& of = trace.links[static_cast<std::size_t>(link)];
  const LinkCurve& curve = document.link(link);
  const LinkUse use = curve.over(trace.begin.value, trace.end.value);
  std::vector<Fact> facts{{"link", std::string(trace.text(of.name))}};
  facts.push_back(
      {"load", percent_text(curve.at(trace.begin.value + since)) + " at " + time_text(since)});
  facts.push_back(
      {"over the step", "mean " + percent_text(use.mean) + ", at most " + percent_text(use.peak)});
  if (of.bytes_per_second > 0) {
    facts.push_back(
        {"bandwidth", fixed_text(static_cast<double>(of.bytes_per_second) / 1e9, 1) + " GB/s"});
  }
  return facts;
}

}  // namespace rehearse::viz
