// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/predicted_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "schedules/base/counted.h"
#include "schedules/trace/trace_inside.h"
#include "sim/memory/arena_memory.h"
#include "sim/memory/replay/memory_replay.h"
#include "sim/network/topology.h"
#include "sim/predict/link_names.h"

namespace rehearse::sim {
namespace {

// Begin and end of what an op of the order became in a row of the program, by what it does. A whole
// backward may have become several parts.
using OpSignature = std::tuple<OpKind, std::int32_t, std::int32_t, std::int32_t>;
OpSignature signature_of(const Op& op) {
  return {op.kind, op.stage.value, op.microbatch.value, op.slice};
}
std::map<OpSignature, std::pair<std::int64_t, std::int64_t>> spans_of(const Prediction& p,
                                                                      RankClass row) {
  std::map<OpSignature, std::pair<std::int64_t, std::int64_t>> spans;
  const std::size_t first = p.schedule.first_op(row);
  const auto program = p.schedule.program(row);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Op& op = program[i];
    if (!is_compute(op.kind) && op.kind != OpKind::OptimizerStep) continue;
    const std::int64_t start = p.timeline.start[first + i].value,
                       end = p.timeline.end[first + i].value;
    const OpSignature signature =
        op.kind == OpKind::OptimizerStep ? OpSignature{op.kind, -1, -1, -1} : signature_of(op);
    const auto [at, fresh] = spans.try_emplace(signature, start, end);
    if (!fresh) at->second = {std::min(at->second.first, start), std::max(at->second.second, end)};
  }
  return spans;
}

// The same for a framework: its memory is replayed op by op. An op's changes lie evenly between its
// begin and its end: when within it each happens, no kernel's time says.
void add_replayed_memory(Trace& trace, const Prediction& p, const Scenario& scenario,
                         const Cluster& cluster) {
  const Result<MemoryProfile> profile = read_memory_profile(p.plan.runtime.name);
  if (!profile) return;
  const LoadedLayout busiest({scenario.model, p.plan}, {.rows = p.memory.load.rows});
  ReplaySetup setup = replay_setup(profile.value(), busiest.layout(),
                                   cluster.gpu.compute_capability.value_or(0), p.order);
  setup.whole_step = setup.samples = true;
  for (const std::string_view name : kAllocatedParts) trace.memory_parts.emplace_back(name);
  const bool through_root = setup.role != ReplicaRole::Alike;
  const ReplaySetup others = through_root ? with_role(setup, ReplicaRole::Other) : setup;
  // Per position, whose rows differ in time alone, but where one replica has the loss of all.
  std::map<std::int32_t, ReplayResult> replays;
  std::vector<std::int64_t> begin{0}, time, bytes;
  for (std::int32_t r = 0; r < p.schedule.num_rows(); ++r) {
    const RankClass position{p.schedule.rows[static_cast<std::size_t>(r)].position.value};
    const auto [known, fresh] = replays.try_emplace(through_root ? r : position.value);
    if (fresh) known->second = replay_row(r == 0 ? setup : others, position, {});
    const auto spans = spans_of(p, RankClass{r});
    std::int64_t now = p.timeline.begin.value;
    const auto add = [&](std::int64_t at, const MemoryBytes& alive) {
      now = std::max(now, at);
      time.push_back(now);
      bytes.insert(bytes.end(), alive.begin(), alive.end());
    };
    const ReplayResult& replay = known->second;
    // A step begins with what the one before it left.
    if (!replay.samples.empty()) add(now, replay.samples.back().after);
    for (const MemorySample& sample : std::span(replay.samples).subspan(replay.last_step)) {
      const OpSignature signature = sample.op ? signature_of(p.order.ops[sample.op.index()])
                                              : OpSignature{OpKind::OptimizerStep, -1, -1, -1};
      const auto span = spans.find(signature);
      const auto [from, to] = span == spans.end() ? std::pair{now, now} : span->second;
      const auto runs = static_cast<std::int64_t>(sample.inside.size());
      for (std::int64_t i = 0; i < runs; ++i)
        add(from + (to - from) * i / runs, sample.inside[static_cast<std::size_t>(i)]);
      add(to, sample.after);
    }
    begin.push_back(static_cast<std::int64_t>(time.size()));
  }
  trace.memory_begin = std::move(begin);
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
}

// What each node inside a body takes, by the models that priced the prediction.
rehearse::NodeTimes node_times(const Prediction& p) {
  return [models = p.models](const Body& body) {
    std::vector<NodeTime> times;
    for (const NodePrice& node : models->compute->price_nodes(body)) {
      times.push_back({node.time, static_cast<std::uint8_t>(node.level)});
    }
    return times;
  };
}

}  // namespace

Trace predicted_trace(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  TraceOptions options{
      .label = TraceLabel::Predicted,
      .title = scenario.name,
      .caption = "predicted on " + (cluster.name.empty() ? cluster.id : cluster.name)};
  if (cluster.workers > 0 && p.gpus > cluster.workers) {
    options.caption +=
        "; " + std::to_string(p.gpus) + " ranks take turns on " + counted(cluster.workers, "core");
  }
  if (p.scatter > kDoubtfulScatter) {
    options.caption += ", doubtful: its measurements lay " +
                       std::to_string(std::llround(100 * p.scatter)) + " % apart";
  }
  if (p.memory.at_building())
    options.caption += "; the peak of some rank's memory is before this step";
  options.rows = trace_rows(p.schedule, p.plan, p.memory.capacity);
  options.schedule_hash = p.schedule_hash();
  Trace trace = make_trace(p.schedule, p.timeline.start, p.timeline.end, options);
  add_nodes(trace, p.schedule, {scenario.model, p.plan}, node_times(p));
  trace.idle_begin = std::vector<std::int64_t>(p.bubbles.span_begin);
  trace.idle = std::vector<IdleSpan>(p.bubbles.spans);
  std::vector<std::uint8_t> level;
  std::vector<std::int64_t> communicating;
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    const Cost& of = p.pricing.table.costs[static_cast<std::size_t>(p.pricing.table.of_op[i])];
    level.push_back(static_cast<std::uint8_t>(of.level));
    // A collective or transfer on the compute stream is idle time of the rank, all of it.
    const Op& op = p.schedule.ops[i];
    const OpClass op_class = traits(op.kind).op_class;
    const bool waits = op.stream == Stream::Compute &&
                       (op_class == OpClass::Collective || op_class == OpClass::Transfer);
    const std::int64_t lasted = (p.timeline.end[i] - p.timeline.start[i]).value;
    // What its body waits for: its own collectives, their links, the busiest rank (bubbles.cc).
    const std::int64_t shared = p.timeline.contended.empty() || op_class != OpClass::Compute
                                    ? 0
                                    : p.timeline.contended[i].value;
    const std::int64_t inside = of.communicating.value + shared + of.imbalanced.value;
    communicating.push_back(waits ? lasted : std::min(inside, lasted));
  }
  trace.cost_level = std::move(level);
  trace.communicating_ns = std::move(communicating);
  if (p.plan.runtime.performer().plans_arena) {
    add_arena_memory(trace, p.schedule, p.timeline.start);
  } else {
    add_replayed_memory(trace, p, scenario, cluster);
  }
  if (!p.timeline.load_begin.empty()) {
    std::vector<TraceLink> links;
    const std::span<const Link> known = p.models->network->links();
    for (const std::string& name : link_names(p, cluster)) {
      const std::size_t i = links.size();  // the last may stand for the machine's cores
      trace.strings.push_back(name);
      links.push_back(
          {.name = static_cast<TraceString>(trace.strings.size()) - 1,
           .bytes_per_second = i < known.size() ? std::llround(known[i].capacity.value) : 0});
    }
    std::vector<std::int64_t> begin(p.timeline.load_begin.begin(), p.timeline.load_begin.end());
    trace.links = std::move(links);
    trace.link_begin = std::move(begin);
    trace.link_samples = std::vector<LinkSample>(p.timeline.load);
  }
  trace.row_class = std::vector<std::int32_t>(p.row_class);
  return trace;
}

}  // namespace rehearse::sim
