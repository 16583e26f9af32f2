// SPDX-License-Identifier: Apache-2.0
// What an exchange takes longer because the links between processes are throttled (Cluster).
#pragma once

#include <span>
#include <vector>

#include "schedules/base/units.h"
#include "schedules/ir/op.h"
#include "sim/cost/cost.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

// Adds to `time`, alone, the way over the links: the latency of every round and what the busiest
// link carries; `demands` are then those of the whole time, the links' among them. Returns what was
// added, in which nobody copies. `bytes` as collective_cost.h counts (Send: the message of a rank).
Nanoseconds add_crossing(OpKind kind, Bytes bytes, std::int32_t members, std::int32_t processes,
                         std::span<const Crossing> crossings, const Cluster& cluster,
                         Nanoseconds& time, std::vector<Demand>& demands);

}  // namespace rehearse::sim
