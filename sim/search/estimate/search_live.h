// SPDX-License-Identifier: Apache-2.0
// What a plan's own order holds at its fullest: the bound before the replay.
//
// memory_lower_bound knows how many micro-batches are in flight for orders with a closed form; here
// every order is generated, once per shape, and walked with the plan's bytes, so that plans that
// keep too much are refused without a replay.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"
#include "sim/memory/memory_live.h"
#include "sim/search/estimate/search_estimate.h"

namespace rehearse::sim {

class LiveBounds {
 public:
  struct Bound {
    std::int64_t bytes = 0;  // [B] never more than the replay's peak on the fullest rank,
                             // communicators and context included
    RankClass fullest{};     // the row that needs most by this bound; none: rows were not looked at
  };
  // Thread safe. REQUIRES: plans of one scenario.
  Bound bound(const SearchSetup& setup, const Plan& plan, const Cluster& cluster);
  std::int64_t lower_bound(const SearchSetup& setup, const Plan& plan, const Cluster& cluster) {
    return bound(setup, plan, cluster).bytes;
  }

 private:
  using Rows = std::vector<LiveRow>;
  std::shared_ptr<const Rows> rows_of(const Transformer& model, const Plan& plan);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Rows>> known_;
  std::size_t ops_ = 0;  // in known_
};

}  // namespace rehearse::sim
