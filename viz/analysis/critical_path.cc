// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>

#include "viz/analysis/analysis.h"
#include "viz/analysis/causality.h"

namespace rehearse::viz {

CriticalPath critical_path(const Trace& trace) {
  CriticalPath path;
  const auto n = static_cast<std::size_t>(trace.num_ops());
  if (n == 0) return path;
  const Causality causality(trace);
  const auto nodes = static_cast<std::size_t>(causality.num_nodes());
  std::vector<std::int64_t> start(nodes), end(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    start[node] = causality.start(static_cast<std::int32_t>(node));
    end[node] = causality.end(static_cast<std::int32_t>(node));
  }

  // Slack: walk backwards in time; what comes after a node says how late the node may end.
  std::vector<std::int32_t> order(nodes);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return start[x] != start[y] ? start[x] > start[y] : end[x] != end[y] ? end[x] > end[y] : a > b;
  });
  std::vector<std::int64_t> latest_end(nodes, trace.end.value);
  for (const std::int32_t node : order) {
    const auto i = static_cast<std::size_t>(node);
    const std::int64_t latest_start = latest_end[i] - (end[i] - start[i]);
    causality.for_each_before(node, [&](OpId before) {
      std::int64_t& late = latest_end[static_cast<std::size_t>(causality.node_of(before))];
      late = std::min(late, latest_start);
    });
  }
  path.slack.resize(n);
  for (std::size_t op = 0; op < n; ++op) {
    const auto node = static_cast<std::size_t>(causality.node_of({static_cast<std::int32_t>(op)}));
    path.slack[op] = std::max<std::int64_t>(0, latest_end[node] - end[node]);
  }

  // The path: from the op that ends last, always to what arrived last.
  std::int32_t at = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    if (end[node] > end[static_cast<std::size_t>(at)]) at = static_cast<std::int32_t>(node);
  }
  std::int64_t reached = trace.end.value;
  std::vector<std::uint8_t> seen(nodes);  // measured times may contradict the order: no circles
  std::int32_t via = causality.members(at)[0];
  while (at >= 0 && seen[static_cast<std::size_t>(at)] == 0) {
    const auto node = static_cast<std::size_t>(at);
    seen[node] = 1;
    path.ops.push_back({via});
    const std::int64_t to = std::min(end[node], reached), from = std::min(start[node], to);
    path.in_ops += to - from;
    path.waiting += reached - to;
    reached = from;
    std::int32_t best = -1;
    std::int64_t latest = std::numeric_limits<std::int64_t>::min();
    causality.for_each_before(at, [&](OpId before) {
      const std::int32_t other = causality.node_of(before);
      if (end[static_cast<std::size_t>(other)] <= latest || other == at) return;
      latest = end[static_cast<std::size_t>(other)];
      best = other;
      via = before.value;
    });
    at = best;
  }
  path.waiting += reached - trace.begin.value;
  std::ranges::reverse(path.ops);
  return path;
}

}  // namespace rehearse::viz
