// SPDX-License-Identifier: Apache-2.0
// What an op costs: the one interface between pricing and the two engines.
//
// Equal ops are priced once; an op holds an index into the table. The static sweep reads `time`
// only; the event engine also reads what the op demands of shared resources while it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedules/base/units.h"

namespace rehearse::sim {

// What a predicted time rests on, best first (report key `confidence`).
enum class CostLevel : std::uint8_t { Measured, Interpolated, Formula, Datasheet };
inline constexpr std::size_t kNumCostLevels = 4;
std::string_view name_of(CostLevel level);
// Error band of a level: relative residual that its kind of estimate showed when left out of the
// fit (docs/cost_models.md).
double error_band(CostLevel level);

// A shared thing with a capacity: the scale-up port of a GPU, the NICs of a node, a leaf's uplinks.
using ResourceId = Id<struct ResourceTag>;

// Share of a resource's capacity that the op takes while it runs at full speed, in (0, 1]: its
// bytes over the resource / (capacity * time alone). At rate r it takes r * share; the event
// engine gives concurrent ops max-min fair rates <= 1 with the shares of each resource summing
// to at most 1.
struct Demand {
  ResourceId resource{};
  double share = 0;
};

struct Cost {
  Nanoseconds time{};  // alone, >= 0
  // the host thread is busy issuing it; the op starts no earlier than that
  Nanoseconds host{};
  // of `time`: the body waits for its own collectives (idle, not busy)
  Nanoseconds communicating{};
  // of `time`: ranks with fewer rows of experts than the busiest wait for it (idle, not busy)
  Nanoseconds imbalanced{};
  double slowdown = 0;  // compute of the same row runs at rate (1 - slowdown) meanwhile
  CostLevel level = CostLevel::Formula;
  std::int32_t demand_begin = 0, demand_end = 0;  // into CostTable::demands
};

struct CostTable {
  std::vector<Cost> costs;
  std::vector<Demand> demands;
  std::int32_t num_resources = 0;
  std::vector<std::int32_t> of_op;  // per op of the schedule: index into costs

  const Cost& cost(OpId op) const { return costs[static_cast<std::size_t>(of_op[op.index()])]; }
  std::span<const Demand> demands_of(const Cost& cost) const {
    return std::span{demands}.subspan(
        static_cast<std::size_t>(cost.demand_begin),
        static_cast<std::size_t>(cost.demand_end - cost.demand_begin));
  }
};

}  // namespace rehearse::sim
