// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "schedules/body/body.h"
#include "schedules/scenario/layout.h"
#include "sim/formulas/expert_load.h"
#include "sim/network/collective_cost.h"
#include "sim/network/dispatch_cost.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

// The collectives inside bodies, on the groups of row 0: each group placed once, and what is equal
// priced once.
class BodyCollectives {
 public:
  // REQUIRES: network and layout outlive it.
  BodyCollectives(const Network& network, const Layout& layout);

  const GroupShape& group(Axis axis);
  const CollectiveCost& cost(NodeKind kind, Axis axis, Bytes payload);
  // What the report's `bytes` count: the payload, and of tokens to experts the copies that travel,
  // on average: n k h B, of which a capacity keeps a part; deduplicated n D h B (dispatch_cost.h).
  Bytes sent(NodeKind kind, Axis axis, Bytes payload);

 private:
  using Key = std::array<std::int64_t, 3>;

  CollectiveCost price(NodeKind kind, const GroupShape& group, Bytes payload) const;

  const Network& network_;
  Dispatcher dispatcher_;
  std::int64_t hidden_, tokens_;  // h, n
  bool slots_;                    // plan.expert_slots
  ExpertBalance balance_;
  std::array<std::optional<GroupShape>, kNumAxes> shapes_;
  std::map<Key, CollectiveCost> known_;
};

}  // namespace rehearse::sim
