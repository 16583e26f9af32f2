// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/node_costs.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace rehearse::sim {

namespace {

// Ops of the queue take at most this share of the resource, one at a time.
struct Claim {
  ResourceId resource{};
  std::int32_t queue = 0;
  double share = 0;
};

// Per resource: taken if each queue runs the op that takes most of it, all at once.
std::vector<double> most_taken(std::vector<Claim> claims, std::int32_t num_resources) {
  std::ranges::sort(claims, {}, [](const Claim& claim) {
    return std::tuple(claim.resource.value, claim.queue, -claim.share);
  });
  std::vector<double> most(static_cast<std::size_t>(num_resources));
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const bool same_queue = i > 0 && claims[i].resource == claims[i - 1].resource &&
                            claims[i].queue == claims[i - 1].queue;
    if (!same_queue) most[claims[i].resource.index()] += claims[i].share;
  }
  return most;
}

// Which streams of a row have run ops of a cost.
struct Seen {
  std::int32_t row = -1;
  std::uint32_t streams = 0;
};
static_assert(kNumStreams <= 32);

}  // namespace

NodeCosts::NodeCosts(const Program& program, const CostTable& costs, Demands which)
    : entry_of_(static_cast<std::size_t>(program.num_nodes)), last_pair_(costs.costs.size()) {
  for (const Cost& cost : costs.costs) {
    entries_.push_back({.time = cost.time.value, .slowdown = cost.slowdown});
    if (which == Demands::All) entries_.back().demands = costs.demands_of(cost);
  }
  any_demands_ = which == Demands::All && !costs.demands.empty();
  if (which == Demands::Shared && !costs.demands.empty()) keep_shared(program, costs);
  for (std::int32_t n = 0; n < program.num_nodes; ++n) {
    entry_of_[static_cast<std::size_t>(n)] = entry_of(program.members_of({n}), costs);
  }
}

// Grouped transfers run several at a time: then nothing is left out. Looked through row by row, so
// that what a queue claims by many ops of one cost is counted once: claims are as few as there are
// pairs of a queue and a cost, not as many as ops.
void NodeCosts::keep_shared(const Program& program, const CostTable& costs) {
  std::vector<Seen> seen(costs.costs.size());
  std::vector<Claim> claims;
  std::int64_t num_queues = 0;
  for (std::int32_t r = 0; r < program.num_rows; ++r) {
    std::uint32_t used = 0;  // streams of the row
    const auto end = static_cast<std::size_t>(program.row_begin[static_cast<std::size_t>(r) + 1]);
    for (auto i = static_cast<std::size_t>(program.row_begin[static_cast<std::size_t>(r)]); i < end;
         ++i) {
      const auto stream = static_cast<std::int32_t>(program.stream[i]);
      const std::uint32_t bit = std::uint32_t{1} << stream;
      const auto cost = static_cast<std::size_t>(costs.of_op[i]);
      Seen& before = seen[cost];
      if (before.row != r) before = {.row = r};
      if ((before.streams & bit) != 0) continue;
      before.streams |= bit;
      used |= bit;
      const std::int32_t queue = r * static_cast<std::int32_t>(kNumStreams) + stream;
      for (const Demand& demand : costs.demands_of(costs.costs[cost])) {
        claims.push_back({demand.resource, queue, demand.share});
      }
    }
    num_queues += std::popcount(used);
  }
  const bool one_at_a_time = program.most_running <= num_queues;
  const std::vector<double> most = most_taken(std::move(claims), costs.num_resources);
  shared_.reserve(costs.demands.size());
  for (std::size_t c = 0; c < costs.costs.size(); ++c) {
    const std::size_t begin = shared_.size();
    for (const Demand& demand : costs.demands_of(costs.costs[c])) {
      if (!one_at_a_time || most[demand.resource.index()] > 1) shared_.push_back(demand);
    }
    entries_[c].demands = std::span{shared_}.subspan(begin);
  }
  any_demands_ = !shared_.empty();
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
  if (distinct_.size() > 2) return merge();
  // Transfers: few pairs, met again and again, mostly with the same partner as before.
  Pair& last = last_pair_[static_cast<std::size_t>(first)];
  if (last.second != distinct_.back()) {
    const auto [known, is_new] = pairs_.try_emplace({first, distinct_.back()}, -1);
    if (is_new) known->second = merge();
    last = {distinct_.back(), known->second};
  }
  return last.entry;
}

std::int32_t NodeCosts::merge() {
  ProgramNodeCost merged{.mixed = true};
  std::vector<Demand>& list = lists_.emplace_back();
  for (const std::int32_t c : distinct_) {
    const ProgramNodeCost& cost = entries_[static_cast<std::size_t>(c)];
    merged.time = std::max(merged.time, cost.time);
    merged.slowdown = std::max(merged.slowdown, cost.slowdown);
    for (const Demand& demand : cost.demands) {
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
