// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks: rank = mixed radix of the coordinates in the plan's rank_order.
#pragma once

#include <array>
#include <vector>

#include "schedules/scenario/plan.h"

namespace rehearse {

// Coordinates on tp, cp, dp, pp. Experts have a mesh of their own on the same ranks: Folded.
struct Coordinates {
  std::int32_t tensor = 0, context = 0, data = 0, pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

// The experts' coordinates of a rank: with j its place inside its position (mixed radix of tp, cp,
// dp in the plan's rank_order), j = tensor + q (expert + e data). Experts that are not folded
// (Plan::folds_experts) lie as dense matrices do, whatever the order: tensor is the rank's on tp,
// data its replica. Source: NVIDIA/Megatron-LM megatron/core/parallel_state.py; arXiv 2504.14960.
struct Folded {
  std::int32_t tensor = 0, expert = 0, data = 0;  // in [0, q), [0, e), [0, r)
  bool operator==(const Folded&) const = default;
};

class Mesh {
 public:
  explicit Mesh(const Plan& plan);
  std::int32_t ranks() const;
  Rank rank(const Coordinates& at) const;
  Coordinates coordinates(Rank rank) const;
  Folded folded(const Coordinates& at) const;
  // The other way, on a position of the pipeline.
  Rank rank(const Folded& at, std::int32_t pipeline) const;
  // Number of the replica that computes at these coordinates, and the other way, on tp 0.
  std::int32_t replica(const Coordinates& at) const {
    return at.data * size(Axis::Context) + at.context;
  }
  Coordinates of_replica(std::int32_t replica, std::int32_t pipeline) const;
  // Number of the pipeline through these coordinates: of those of a replica the ranks of tp.
  std::int32_t column(const Coordinates& at) const {
    return replica(at) * size(Axis::Tensor) + at.tensor;
  }
  // Which row and which column of the grid of tensor parallel ranks a rank is in; without a grid 0
  // and the place on tp.
  std::int32_t grid_row(const Coordinates& at) const { return at.tensor / grid_columns_; }
  std::int32_t grid_column(const Coordinates& at) const { return at.tensor % grid_columns_; }
  // Members of a row, or of a column, of it.
  std::int32_t grid_columns() const { return grid_columns_; }
  std::int32_t grid_rows() const { return size(Axis::Tensor) / grid_columns_; }
  std::int32_t shards() const { return shards_; }  // Plan::shards
  // Replicas of a neighbourhood, of groups that are a part of the replicas (ReplicaPart): of shards
  // along data and context, along context alone those that exchange heads.
  std::int32_t neighbours(bool along_data) const { return along_data ? shards_ : exchanging_; }
  const Folded& folded_size() const { return folded_size_; }
  std::int32_t stride(Axis axis) const;  // distance in ranks between neighbours on the axis
  std::int32_t stride_in_position(Axis axis) const;  // the same inside a position: j of Folded
  std::int32_t size(Axis axis) const;
  // Members of the group along `axis` that holds `rank`, by coordinate.
  std::vector<Rank> group(Axis axis, Rank rank) const;

 private:
  std::array<std::int32_t, 5> size_{1, 1, 1, 1, 1}, stride_{1, 1, 1, 1, 1};
  std::array<std::int32_t, 5> stride_in_position_{1, 1, 1, 1, 1};  // tp, cp, dp: j
  Folded folded_size_{1, 1, 1};
  std::int32_t shards_ = 1, exchanging_ = 1, grid_columns_ = 1;
};

}  // namespace rehearse
