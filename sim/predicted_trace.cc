#include "sim/predicted_trace.h"

#include <algorithm>

#include "schedules/mesh.h"
#include "sim/arena_memory.h"
#include "sim/topology.h"

namespace rehearse::sim {
namespace {

// Bytes alive over time by the report's parts: they change when an op is issued.
void add_arena_memory(Trace& trace, const Prediction& p) {
  const Schedule& s = p.schedule;
  for (const std::string_view name : kAllocatedParts) trace.memory_parts.emplace_back(name);
  std::vector<std::int64_t> begin{0}, time, bytes;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    const auto alive = alive_bytes(s, Row{r});
    const auto first = static_cast<std::size_t>(s.row_begin[static_cast<std::size_t>(r)]);
    std::int64_t at = p.timeline.begin.value;
    for (std::size_t i = 0; i < alive.size(); ++i) {
      at = std::max(at, p.timeline.start[first + i].value);
      if (i > 0 && alive[i] == alive[i - 1]) continue;
      time.push_back(at);
      bytes.insert(bytes.end(), alive[i].begin(), alive[i].end());
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
