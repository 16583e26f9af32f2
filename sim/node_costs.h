// Costs laid out by node, as the event engine reads them: time alone with jitter, and the demands
// of all members as one list.
#pragma once

#include <span>
#include <vector>

#include "sim/cost.h"
#include "sim/event_engine.h"
#include "sim/program.h"

namespace rehearse::sim {

struct NodeCosts {
  std::vector<Nanoseconds> time;    // per node, jitter included
  std::vector<Nanoseconds> late;    // of it, what jitter and row factors added; empty: nothing
  std::vector<Nanoseconds> issued;  // sweep.h: issue_times()
  std::vector<std::int32_t> demand_begin, demand_end;  // per node, into `demands`; empty: none
  std::vector<Demand> demands;

  std::span<const Demand> demands_of(NodeId n) const {
    if (demand_begin.empty()) return {};
    const auto from = static_cast<std::size_t>(demand_begin[n.index()]);
    return std::span{demands}.subspan(from, static_cast<std::size_t>(demand_end[n.index()]) - from);
  }
};

NodeCosts node_costs(const Program& program, const CostTable& costs, const EngineOptions& options);

}  // namespace rehearse::sim
