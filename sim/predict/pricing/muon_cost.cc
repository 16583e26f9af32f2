// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/muon_cost.h"

#include <algorithm>

#include "schedules/body/sizes.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/collective_cost.h"

namespace rehearse::sim {

MuonCost::MuonCost(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
                   const Network& network)
    : s_(schedule),
      layout_(layout),
      compute_(compute),
      network_(network),
      of_bucket_(schedule.buckets.size()) {
  const std::int64_t h = layout.model.hidden;
  const std::int64_t t = layout.plan.tensor_parallel;
  for (const BucketTensor& at : schedule.tensors) {
    const SegmentInfo& segment =
        schedule.segments[at.stage.index()][static_cast<std::size_t>(at.segment)];
    if (segment.kind != SegmentKind::Layer) continue;
    const auto tensors = segment_parameters(layout, segment.kind, segment.layer);
    const ParameterTensor& tensor = tensors[static_cast<std::size_t>(at.tensor)];
    if (!tensor.matrix) continue;
    std::vector<Matrix>& matrices = of_bucket_[at.bucket.index()];
    if (tensor.role == ParameterRole::Qkv && layout.model.latent.kv_lora_rank == 0) {
      const RankShape& shape = layout.shape;
      matrices.emplace_back(shape.heads * shape.head_dim * t, h);
      matrices.insert(matrices.end(), 2, Matrix(shape.kv_heads * shape.head_dim * t, h));
    } else {
      matrices.emplace_back(tensor.elements / h * t, h);
    }
  }
}

Nanoseconds MuonCost::of(BucketId bucket, RankClass row) {
  double ns = 0;
  for (const Matrix& matrix : of_bucket_[bucket.index()]) ns += whole_ns(matrix, row);
  return to_nanoseconds(ns * share_of(s_.buckets[bucket.index()].position, row));
}

double MuonCost::whole_ns(const Matrix& matrix, RankClass row) {
  const auto [at, fresh] = known_.try_emplace(matrix);
  if (!fresh) return at->second;
  const auto [rows, columns] = matrix;
  at->second = static_cast<double>(compute_.orthogonalize(rows, columns).value);
  if (layout_.plan.tensor_parallel > 1) {
    const CollectiveCost gather = collective_cost(OpKind::AllGather, {2 * rows * columns},
                                                  network_.group(row, Axis::Tensor), network_);
    at->second += static_cast<double>(gather.time.value);
  }
  return at->second;
}

double MuonCost::share_of(Position position, RankClass row) {
  const std::int32_t owners = layout_.plan.zero_stage >= 1 ? layout_.plan.shards() : 1;
  if (owners == 1) return 1;
  const auto [at, fresh] = share_.try_emplace(position.value);
  if (!fresh) return at->second;
  double all = 0, largest = 0;
  for (std::size_t b = 0; b < of_bucket_.size(); ++b) {
    if (s_.buckets[b].position != position) continue;
    for (const Matrix& matrix : of_bucket_[b]) {
      const double ns = whole_ns(matrix, row);
      all += ns;
      largest = std::max(largest, ns);
    }
  }
  return at->second = all > 0 ? std::max(1.0 / owners, largest / all) : 0;
}

}  // namespace rehearse::sim
