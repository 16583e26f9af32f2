// SPDX-License-Identifier: Apache-2.0
// Which ranks meet: the instances of the schedule's groups, over all ranks of the run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/mesh.h"

namespace rehearse::exec {

struct GroupInstances {
  GroupInstances(const Schedule& schedule, const Mesh& mesh);
  // Without a schedule: a group of the ranks [0, 2), [2, 4) ..., one of fours, and so on, and one
  // of all ranks.
  static GroupInstances by_size(std::int32_t ranks);
  struct Place {
    std::int32_t instance = -1;  // -1: the rank is in none
    std::int32_t member = -1;    // its place in the instance
  };
  std::vector<std::vector<Place>> of;            // [group][rank]
  std::vector<std::vector<std::int32_t>> ranks;  // [instance]: ranks by member
  // REQUIRES: the schedule has a group of this kind.
  std::int32_t group(GroupKind kind) const;

 private:
  GroupInstances() = default;
  std::vector<GroupKind> kinds_;
};

// Pairs (from, to) of ranks between which the schedule has transfers, ascending.
std::vector<std::pair<std::int32_t, std::int32_t>> transfer_edges(const Schedule& schedule,
                                                                  const Mesh& mesh);

}  // namespace rehearse::exec
