// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/sweep.h"

#include <algorithm>

namespace rehearse::sim {

void rebind(const Program& program, const CostTable& costs, NodeTimes& times) {
  times.time.resize(static_cast<std::size_t>(program.num_nodes));
  for (std::int32_t n = 0; n < program.num_nodes; ++n) {
    Nanoseconds longest{};
    for (const OpId op : program.members_of({n})) {
      longest = std::max(longest, costs.cost(op).time);
    }
    times.time[static_cast<std::size_t>(n)] = longest;
  }
}

NodeTimes bind(const Program& program, const CostTable& costs) {
  NodeTimes times;
  rebind(program, costs, times);
  times.issued = issue_times(program, costs);
  return times;
}

std::vector<Nanoseconds> issue_times(const Program& program, const CostTable& costs) {
  const auto takes_host = [](const Cost& cost) { return cost.host.value > 0; };
  std::vector<Nanoseconds> issued;
  if (std::ranges::none_of(costs.costs, takes_host)) return issued;
  issued.resize(static_cast<std::size_t>(program.num_nodes));
  for (std::size_t r = 0; r < static_cast<std::size_t>(program.num_rows); ++r) {
    Nanoseconds now{};
    for (std::int32_t i = program.row_begin[r]; i < program.row_begin[r + 1]; ++i) {
      now += costs.cost({i}).host;
      Nanoseconds& latest = issued[program.node_of[static_cast<std::size_t>(i)].index()];
      latest = std::max(latest, now);
    }
  }
  return issued;
}

namespace {

template <bool kHost>
Nanoseconds sweep_nodes(const Program& program, const NodeTimes& times, Nanoseconds* start,
                        Nanoseconds* end) {
  const auto num_nodes = static_cast<std::size_t>(program.num_nodes);
  const std::int32_t* const begin = program.pred_begin.data();
  const NodeId* const preds = program.preds.data();
  std::int64_t finish = 0;
  std::size_t k = 0;
  for (std::size_t n = 0; n < num_nodes; ++n) {
    std::int64_t ready = kHost ? times.issued[n].value : 0;
    for (const auto stop = static_cast<std::size_t>(begin[n + 1]); k < stop; ++k) {
      ready = std::max(ready, end[preds[k].index()].value);
    }
    start[n].value = ready;
    ready += times.time[n].value;
    end[n].value = ready;
    finish = std::max(finish, ready);
  }
  return {finish};
}

}  // namespace

Nanoseconds sweep(const Program& program, const NodeTimes& times, std::vector<Nanoseconds>& start,
                  std::vector<Nanoseconds>& end) {
  return times.issued.empty() ? sweep_nodes<false>(program, times, start.data(), end.data())
                              : sweep_nodes<true>(program, times, start.data(), end.data());
}

Timeline by_op(const Program& program, const std::vector<Nanoseconds>& start,
               const std::vector<Nanoseconds>& end) {
  Timeline timeline;
  timeline.start.resize(static_cast<std::size_t>(program.num_ops));
  timeline.end.resize(static_cast<std::size_t>(program.num_ops));
  for (std::size_t i = 0; i < timeline.start.size(); ++i) {
    timeline.start[i] = start[program.node_of[i].index()];
    timeline.end[i] = end[program.node_of[i].index()];
  }
  if (!start.empty()) {
    timeline.begin = *std::ranges::min_element(start);
    timeline.finish = *std::ranges::max_element(end);
  }
  return timeline;
}

Result<Timeline> sweep(const Program& program, const CostTable& costs) {
  if (!program.deadlock.empty()) return Error{program.deadlock};
  const NodeTimes times = bind(program, costs);
  std::vector<Nanoseconds> start(times.time.size()), end(times.time.size());
  sweep(program, times, start, end);
  return by_op(program, start, end);
}

}  // namespace rehearse::sim
