// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/mesh.h"

#include <algorithm>

namespace rehearse {
namespace {
constexpr std::size_t at(Axis axis) {
  return static_cast<std::size_t>(axis);
}
}  // namespace

Mesh::Mesh(const Plan& plan) {
  size_[at(Axis::Tensor)] = plan.tensor_parallel;
  size_[at(Axis::Context)] = plan.context_parallel;
  size_[at(Axis::Data)] = plan.data_parallel;
  size_[at(Axis::Pipeline)] = plan.pipeline_parallel;
  grid_columns_ =
      plan.tensor_parallel_2d.any() ? plan.tensor_parallel_2d.columns : plan.tensor_parallel;
  std::int32_t stride = 1;
  for (const Axis axis : plan.rank_order) {
    if (axis == Axis::Expert) continue;
    stride_[at(axis)] = stride;
    stride *= size_[at(axis)];
  }
  const std::vector<Axis> as_dense{Axis::Tensor, Axis::Context, Axis::Data};
  std::int32_t in_position = 1;
  for (const Axis axis : plan.folds_experts() ? plan.rank_order : as_dense) {
    if (axis == Axis::Expert || axis == Axis::Pipeline) continue;
    stride_in_position_[at(axis)] = in_position;
    in_position *= size_[at(axis)];
  }
  folded_size_ = {plan.expert_tensor_parallel, plan.expert_parallel, plan.expert_replicas()};
  shards_ = plan.secondary_shard_group > 0 ? plan.secondary_shard_group : plan.shards();
  exchanging_ = std::max(1, plan.head_exchange_group);
}

std::int32_t Mesh::ranks() const {
  std::int32_t ranks = 1;
  for (const std::int32_t size : size_) ranks *= size;
  return ranks;
}

std::int32_t Mesh::stride(Axis axis) const {
  return stride_[at(axis)];
}
std::int32_t Mesh::stride_in_position(Axis axis) const {
  return stride_in_position_[at(axis)];
}
std::int32_t Mesh::size(Axis axis) const {
  return size_[at(axis)];
}

Rank Mesh::rank(const Coordinates& c) const {
  return {c.tensor * stride(Axis::Tensor) + c.context * stride(Axis::Context) +
          c.data * stride(Axis::Data) + c.pipeline * stride(Axis::Pipeline)};
}

Coordinates Mesh::coordinates(Rank rank) const {
  const auto on = [&](Axis axis) { return rank.value / stride(axis) % size(axis); };
  return {on(Axis::Tensor), on(Axis::Context), on(Axis::Data), on(Axis::Pipeline)};
}

Coordinates Mesh::of_replica(std::int32_t replica, std::int32_t pipeline) const {
  const std::int32_t c = size(Axis::Context);
  return {.context = replica % c, .data = replica / c, .pipeline = pipeline};
}

Folded Mesh::folded(const Coordinates& c) const {
  const std::int32_t place = c.tensor * stride_in_position_[at(Axis::Tensor)] +
                             c.context * stride_in_position_[at(Axis::Context)] +
                             c.data * stride_in_position_[at(Axis::Data)];
  const std::int32_t q = folded_size_.tensor, e = folded_size_.expert;
  return {place % q, place / q % e, place / (q * e)};
}

Rank Mesh::rank(const Folded& f, std::int32_t pipeline) const {
  const std::int32_t place =
      f.tensor + folded_size_.tensor * (f.expert + folded_size_.expert * f.data);
  const auto on = [&](Axis axis) { return place / stride_in_position_[at(axis)] % size(axis); };
  return rank({on(Axis::Tensor), on(Axis::Context), on(Axis::Data), pipeline});
}

std::vector<Rank> Mesh::group(Axis axis, Rank rank) const {
  const std::int32_t coordinate = rank.value / stride(axis) % size(axis);
  std::vector<Rank> members;
  for (std::int32_t i = 0; i < size(axis); ++i) {
    members.push_back({rank.value + (i - coordinate) * stride(axis)});
  }
  return members;
}

}  // namespace rehearse
