// SPDX-License-Identifier: Apache-2.0
// Every op of a lowered schedule gets a cost: equal ops (template and part, or kind, bytes and
// group shape) are priced once.
//
// Joins the models: bodies (body_cost), collectives and transfers (collective_cost, transfer_cost)
// on placed groups (topology). Knows nothing of order or time of day.
#pragma once

#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/compute/body_cost.h"
#include "sim/cost/cost.h"
#include "sim/cost/rests_on.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

// Traffic of one kind over one group, as one op causes it: rows of the report's `communication`.
struct Traffic {
  GroupKind group{};
  OpKind kind{};  // Send for transfers
  std::int32_t ranks = 1;
  std::int64_t count = 0;
  std::int64_t bytes = 0;          // payload per rank, the whole array, all `count` together
  Nanoseconds time{};              // alone, all together
  Nanoseconds waits{};             // of it: of blocking transfers, in which nothing travels
  LinkKind link = LinkKind::Port;  // the slowest
  LinkKinds links{};               // all that it loads
};

struct Pricing {
  CostTable table;
  std::vector<RestsOn> rests_on;              // per cost: shares of its time
  std::vector<std::vector<Traffic>> traffic;  // per cost
  // Per cost: a body that the host issues hardly faster than the device works it off
  // (host / device above kHostNear).
  std::vector<bool> host_bound;
  static constexpr double kHostNear = 0.8;
};

// REQUIRES: `schedule` is lowered from `layout`; the compute model is of the same.
Pricing price(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
              const Network& network);

// The collectives inside bodies, for ComputeModel::create. REQUIRES: network outlives the function.
CollectiveTimes body_collectives(const Network& network, const Layout& layout);

}  // namespace rehearse::sim
