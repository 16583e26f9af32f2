#include "sim/node_costs.h"

#include <algorithm>

namespace rehearse::sim {

NodeCosts::NodeCosts(const Program& program, const CostTable& costs)
    : entry_of_(static_cast<std::size_t>(program.num_nodes)), last_pair_(costs.costs.size()) {
  for (const Cost& cost : costs.costs) {
    entries_.push_back({cost.time.value, cost.slowdown, false, costs.demands_of(cost)});
  }
  for (std::int32_t n = 0; n < program.num_nodes; ++n) {
    entry_of_[static_cast<std::size_t>(n)] = entry_of(program.members_of({n}), costs);
  }
}

std::int32_t NodeCosts::entry_of(std::span<const OpId> members, const CostTable& costs) {
  const std::int32_t first = costs.of_op[members.front().index()];
  if (members.size() == 1) return first;
  distinct_.assign(1, first);
  for (const OpId op : members.subspan(1)) {
    const std::int32_t cost = costs.of_op[op.index()];
    if (std::ranges::find(distinct_, cost) == distinct_.end()) distinct_.push_back(cost);
  }
  if (distinct_.size() == 1) return first;
  if (distinct_.size() > 2) return merge(costs);
  // Transfers: few pairs, met again and again, mostly with the same partner as before.
  Pair& last = last_pair_[static_cast<std::size_t>(first)];
  if (last.second != distinct_.back()) {
    const auto [known, is_new] = pairs_.try_emplace({first, distinct_.back()}, -1);
    if (is_new) known->second = merge(costs);
    last = {distinct_.back(), known->second};
  }
  return last.entry;
}

std::int32_t NodeCosts::merge(const CostTable& costs) {
  NodeCost merged{.mixed = true};
  std::vector<Demand>& list = lists_.emplace_back();
  for (const std::int32_t c : distinct_) {
    const Cost& cost = costs.costs[static_cast<std::size_t>(c)];
    merged.time = std::max(merged.time, cost.time.value);
    merged.slowdown = std::max(merged.slowdown, cost.slowdown);
    for (const Demand& demand : costs.demands_of(cost)) {
      const auto same = std::ranges::find(list, demand.resource, &Demand::resource);
      if (same == list.end()) {
        list.push_back(demand);
      } else {
        same->share = std::max(same->share, demand.share);
      }
    }
  }
  merged.demands = list;
  entries_.push_back(merged);
  return static_cast<std::int32_t>(entries_.size()) - 1;
}

}  // namespace rehearse::sim
