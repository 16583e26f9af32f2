// SPDX-License-Identifier: Apache-2.0
// Costs by node, as the event engine reads them: nodes whose members have the same costs share one
// entry, so that what is read while events happen is small. A resource that would not be full if
// every queue ran the op that takes most of it binds nobody: demands on it are left out.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/program.h"

namespace rehearse::sim {

struct ProgramNodeCost {
  std::int64_t time = 0;  // [ns] alone: the longest of the members
  double slowdown = 0;    // the largest of the members
  bool mixed = false;     // the members have different costs
  // Demands of all members; each cost counts once, and a resource that several costs name counts
  // with the largest share.
  std::span<const Demand> demands;
};

class NodeCosts {
 public:
  enum class Demands { None, Shared, All };

  // REQUIRES: `costs` outlives this.
  NodeCosts(const Program& program, const CostTable& costs, Demands which);

  bool any_demands() const { return any_demands_; }
  const ProgramNodeCost& operator[](NodeId node) const {
    return entries_[static_cast<std::size_t>(entry_of_[node.index()])];
  }

 private:
  struct Pair {
    std::int32_t second = -1, entry = -1;
  };
  void keep_shared(const Program& program, const CostTable& costs);
  std::int32_t entry_of(std::span<const OpId> members, const CostTable& costs);
  std::int32_t merge();

  std::vector<std::int32_t> entry_of_;  // per node
  std::vector<ProgramNodeCost> entries_;       // first one per cost of the table, then mixtures
  bool any_demands_ = false;
  std::vector<Demand> shared_;              // demands of entries, where not all are kept
  std::vector<std::vector<Demand>> lists_;  // demands of mixtures
  std::vector<std::int32_t> distinct_;      // costs of the node in hand
  std::vector<Pair> last_pair_;             // per first cost: the second it last came with
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> pairs_;  // the others
};

}  // namespace rehearse::sim
