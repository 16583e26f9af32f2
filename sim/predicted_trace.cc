#include "sim/predicted_trace.h"

#include <algorithm>

#include "schedules/mesh.h"
#include "schedules/sizes.h"
#include "sim/topology.h"

namespace rehearse::sim {
namespace {

// Bytes alive over time by the report's parts, from the arena's values: changes at the start of the
// op that defines a value and of the op after the one that it is held until.
void add_arena_memory(Trace& trace, const Prediction& p) {
  const Schedule& s = p.schedule;
  trace.memory_parts = {"parameters", "gradients", "optimizer", "activations", "buffers", "workspace"};
  const std::size_t parts = trace.memory_parts.size();
  const auto part_of = [](const Value& value) -> std::size_t {
    switch (value.kind) {
      case ValueKind::FullParameter: return value.persistent ? 0 : 4;
      case ValueKind::ParameterShard: return 0;
      case ValueKind::Gradient: return 1;
      case ValueKind::OptimizerState: return 2;
      case ValueKind::Workspace: return 5;
      case ValueKind::Input:
      case ValueKind::Metrics: return 4;
      default: return 3;
    }
  };
  std::vector<std::int64_t> begin{0}, time, bytes;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    const auto first = s.row_begin[static_cast<std::size_t>(r)];
    const auto last = s.row_begin[static_cast<std::size_t>(r) + 1];
    std::vector<std::vector<std::int64_t>> change(static_cast<std::size_t>(last - first) + 1,
                                                  std::vector<std::int64_t>(parts, 0));
    for (const Value& value : s.values) {
      if (value.row.value != r || value.home == Home::Host) continue;
      const std::size_t part = part_of(value);
      const std::int64_t size = aligned(value.bytes.value);
      change[static_cast<std::size_t>(value.define ? value.define.value - first : 0)][part] += size;
      if (value.hold_until) change[static_cast<std::size_t>(value.hold_until.value - first) + 1][part] -= size;
    }
    std::vector<std::int64_t> now(parts, 0);
    std::int64_t at = p.timeline.begin.value;
    for (std::int32_t i = first; i < last; ++i) {
      const auto& delta = change[static_cast<std::size_t>(i - first)];
      at = std::max(at, p.timeline.start[static_cast<std::size_t>(i)].value);
      if (std::all_of(delta.begin(), delta.end(), [](std::int64_t d) { return d == 0; })) continue;
      for (std::size_t k = 0; k < parts; ++k) now[k] += delta[k];
      time.push_back(at);
      bytes.insert(bytes.end(), now.begin(), now.end());
    }
    begin.push_back(static_cast<std::int64_t>(time.size()));
  }
  trace.memory_begin = std::move(begin);
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
}

}  // namespace

Trace predicted_trace(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  TraceOptions options{.label = TraceLabel::Predicted, .title = scenario.name,
                       .caption = "predicted on " + (cluster.name.empty() ? cluster.id : cluster.name)};
  const Mesh mesh(p.plan);
  for (const RowInfo& row : p.schedule.rows) {
    const Rank first = mesh.rank({.context = row.data_begin % p.plan.context_parallel,
                                  .data = row.data_begin / p.plan.context_parallel,
                                  .pipeline = row.position.value});
    options.rows.push_back({.position = row.position, .multiplicity = row.multiplicity,
                            .first_rank = first, .capacity_bytes = p.memory.capacity});
  }
  Trace trace = make_trace(p.schedule, p.timeline.start, p.timeline.end, options);
  trace.idle_begin = std::vector<std::int64_t>(p.bubbles.span_begin);
  trace.idle = std::vector<IdleSpan>(p.bubbles.spans);
  std::vector<std::uint8_t> level;
  std::vector<std::int64_t> communicating;
  for (const std::int32_t cost : p.pricing.table.of_op) {
    const Cost& of = p.pricing.table.costs[static_cast<std::size_t>(cost)];
    level.push_back(static_cast<std::uint8_t>(of.level));
    communicating.push_back(of.communicating.value);
  }
  trace.cost_level = std::move(level);
  trace.communicating_ns = std::move(communicating);
  if (p.plan.runtime == Runtime::Rehearse) add_arena_memory(trace, p);
  if (!p.timeline.load_begin.empty()) {
    std::vector<TraceLink> links;
    for (const std::string& name : p.link_names) {
      trace.strings.push_back(name);
      links.push_back({.name = static_cast<TraceString>(trace.strings.size()) - 1});
    }
    std::vector<std::int64_t> begin(p.timeline.load_begin.begin(), p.timeline.load_begin.end());
    trace.links = std::move(links);
    trace.link_begin = std::move(begin);
    trace.link_samples = std::vector<LinkSample>(p.timeline.load);
  }
  return trace;
}

}  // namespace rehearse::sim
