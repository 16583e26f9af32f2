// What a pipeline order holds at its fullest: micro-batches in flight, counted on the order itself.
//
// memory_lower_bound knows this number for orders with a closed form; here every order is generated
// once per shape and counted, so that plans that keep too much are refused without a replay.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "schedules/plan.h"
#include "sim/cluster.h"
#include "sim/search_estimate.h"

namespace rehearse::sim {

class Flights {
 public:
  // Never more than the replay's peak on the fullest rank, communicators and context included [B].
  // Thread safe. REQUIRES: plans of one scenario (equal stage_layers for equal pipelines).
  std::int64_t lower_bound(const SearchSetup& setup, const Plan& plan, const Cluster& cluster);

 private:
  // Per row: the most layers whose activations are alive at once, and the stages it holds.
  struct Row {
    std::int64_t layers = 0;
    std::vector<std::int32_t> stages;
  };
  std::mutex mutex_;
  std::map<std::string, std::vector<Row>> rows_;
};

}  // namespace rehearse::sim
