// SPDX-License-Identifier: Apache-2.0
// What Muon's update of matrices takes beyond reading and writing them: Newton-Schulz products,
// once per step.
//
// Matrices are whole where they are orthogonalized: the ranks that a matrix is cut over gather it
// and each computes all (Megatron-LM, muon's tp_mode "duplicated", with q, k and v apart); an
// expert's matrices are its own, those of gate and up stand in one. From ZeRO-1 on each replica
// owns whole matrices (layer-wise sharding), so they share the work, but no less than the largest
// matrix; without ZeRO every replica does all.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/model/parts.h"
#include "schedules/scenario/layout.h"
#include "sim/compute/body_cost.h"
#include "sim/network/topology.h"

namespace rehearse::sim {

struct MuonMatrix {
  std::int64_t rows = 0, columns = 0;  // whole
  bool cut = false, expert = false;    // over tp; an expert's over etp
  std::int64_t count = 1;              // so many alike on a rank
  auto operator<=>(const MuonMatrix&) const = default;
};
// Those of one part of a layer: itself, or queries, keys and values apart.
std::vector<MuonMatrix> muon_matrices(const Layout& layout, const ModelPart& part);

class MuonCost {
 public:
  // REQUIRES: the arguments live as long.
  MuonCost(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
           const Network& network);
  // The time of one rank of the row, for a bucket of its position.
  Nanoseconds of(BucketId bucket, RankClass row);

 private:
  // All of that kind, on one rank.
  double whole_ns(const MuonMatrix& matrix, RankClass row);
  // The share of all that the busiest of the ranks does that share the row's matrices.
  double share_of(Position position, bool experts, RankClass row);

  const Schedule& s_;
  const Layout& layout_;
  const ComputeModel& compute_;
  const Network& network_;
  std::vector<std::vector<MuonMatrix>> of_bucket_;
  std::map<MuonMatrix, double> known_;                     // time of all alike, with their gathers
  std::map<std::pair<std::int32_t, bool>, double> share_;  // by position, of experts or not
};

}  // namespace rehearse::sim
