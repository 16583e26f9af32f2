// SPDX-License-Identifier: Apache-2.0
// GPUs that differ (Variation), as classes of replicas and factors on their rows' compute times.
//
// The maximum is taken group by group. Ranks of one tensor- and context-parallel group compute an
// op together: the slowest of them counts. A replica's pipeline goes on with its own stages'
// speeds; replicas meet in the schedule's collectives. Folding splits only the replicas that
// differ, into at most kMostRanges neighbouring ranges: beyond that the slowest stay alone, and
// others are together with their neighbours and have their mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/scenario/plan.h"
#include "schedules/scenario/variation.h"

namespace rehearse::sim {

constexpr std::int32_t kMostRanges = 8;

struct ReplicaClasses {
  std::vector<std::int32_t> begins;  // of the ranges, as split_replicas() takes them
  std::int32_t positions = 0;
  // By range and position, the position faster: times of a GPU as described, at least those of the
  // group's slowest; and the share of what is more than 1 in which the group's mean rank waits.
  std::vector<double> factor, waits;
  std::int32_t slowest_rank = -1;  // the one with the largest factor, where GPUs differ in speed
  double slowest_speed = 1;
  std::int32_t merged = 0;  // replicas that have others' mean

  bool split() const { return begins.size() > 1; }
};

// REQUIRES: variation.any().
ReplicaClasses replica_classes(const Variation& variation, const Plan& plan);

// One sentence for the report.
std::string variation_note(const Variation& variation, const ReplicaClasses& classes,
                           const Plan& plan);

}  // namespace rehearse::sim
