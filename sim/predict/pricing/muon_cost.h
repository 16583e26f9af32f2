// SPDX-License-Identifier: Apache-2.0
// What Muon's update of matrices takes beyond reading and writing them: Newton-Schulz products,
// once per step.
//
// Matrices are whole where they are orthogonalized: ranks of a tensor-parallel group gather them
// and each computes all (Megatron-LM, muon's tp_mode "duplicated", with q, k and v apart); from
// ZeRO-1 on each replica owns whole matrices (layer-wise sharding), so they share the work, but no
// less than the largest matrix; without ZeRO every replica does all.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/compute/body_cost.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

class MuonCost {
 public:
  // REQUIRES: the arguments live as long; no experts.
  MuonCost(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
           const Network& network);
  // The time of one rank of the row, for a bucket of its position.
  Nanoseconds of(BucketId bucket, RankClass row);

 private:
  using Matrix = std::pair<std::int64_t, std::int64_t>;  // rows, columns
  double whole_ns(const Matrix& matrix, RankClass row);
  double share_of(Position position, RankClass row);

  const Schedule& s_;
  const Layout& layout_;
  const ComputeModel& compute_;
  const Network& network_;
  std::vector<std::vector<Matrix>> of_bucket_;
  std::map<Matrix, double> known_;        // time of one, with its gather
  std::map<std::int32_t, double> share_;  // by position
};

}  // namespace rehearse::sim
