// SPDX-License-Identifier: Apache-2.0
// Max-min fair rates for what runs at the same time on shared resources.
//
// Every flow f has a rate r_f <= bound_f and takes r_f * share_fk of each resource k that it
// demands; the takings of a resource sum to at most 1. The rates are max-min fair: none can be
// raised without lowering one that is not higher. Equivalently (Bertsekas, Gallager: Data
// Networks, 6.5.2; unverified page): every flow is at its bound, or uses a full resource on which
// no flow has a higher rate. Solved by progressive filling: all rates rise together, a flow stops
// at its bound or when one of its resources is full.
//
// A resource that would not be full even with all its flows at their bounds constrains nobody; what
// is solved anew after a change is what hangs together through the other ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cost/cost.h"

namespace rehearse::sim {

// Flows sit in slots, numbers that the caller gives out and reuses.
class SharedResources {
 public:
  // watched: load() is asked of what touched() names.
  SharedResources(std::int32_t num_resources, std::int32_t num_slots, bool watched = true);

  // REQUIRES: slot is empty; the demands outlive the flow and name each resource at most once;
  // 0 < bound <= 1. Its rate is its bound until settle() says otherwise.
  void add(std::int32_t slot, std::span<const Demand> demands, double bound);
  void remove(std::int32_t slot);
  void set_bound(std::int32_t slot, double bound);

  // Whether anything must be shared out anew.
  bool unsettled() const { return !dirty_.empty() || !dirty_flows_.empty(); }
  // Shares out anew after any number of changes. Returns the slots whose rate is not what it was;
  // valid until the next settle().
  std::span<const std::int32_t> settle();

  double rate(std::int32_t slot) const { return flows_[index(slot)].rate; }
  // The resource that keeps the flow's rate below its bound. REQUIRES: it is below.
  ResourceId limit(std::int32_t slot) const { return flows_[index(slot)].limit; }
  // Resources whose load may have changed in the last settle(), and what is taken of one now.
  std::span<const ResourceId> touched() const { return touched_; }
  double load(ResourceId resource) const;

 private:
  struct Flow {
    std::span<const Demand> demands;
    double bound = 0, rate = 0;
    ResourceId limit{};      // that was full when the flow's rate was last set below its bound
    std::int64_t visit = 0;  // of which settle() it has been seen
    bool changed = false;
    bool frozen = false;
  };
  struct Use {
    std::int32_t slot = -1;
    double share = 0;
  };
  struct Resource {
    std::vector<Use> uses;
    std::int64_t most = 0;  // taken with all flows at their bounds [2^-40 of it]: exact sums
    std::int64_t visit = 0;
    bool was_contended = false;  // in the last settle()
    bool dirty = false;
    double left = 0, weight = 0;  // while filling: not taken yet, shares of flows still rising
    std::int32_t rising = 0;      // number of those flows
  };
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  static bool contended(const Resource& resource);
  void mark(ResourceId resource);
  void mark_if_it_matters(ResourceId resource);
  void change(std::int32_t slot, double rate);
  void visit_flow(std::int32_t slot);
  void solve_from(std::int32_t slot);
  void fill();
  void freeze(std::int32_t slot, double rate);

  const bool watched_;
  std::vector<Flow> flows_;
  std::vector<Resource> resources_;
  std::vector<ResourceId> dirty_, touched_;
  std::vector<std::int32_t> dirty_flows_, changed_;
  std::vector<std::int32_t> component_;  // slots
  std::vector<ResourceId> component_resources_;
  std::int64_t visit_ = 0;
};

}  // namespace rehearse::sim
