// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/muon_cost.h"

#include <algorithm>
#include <iterator>

#include "schedules/body/sizes.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/collective_cost.h"

namespace rehearse::sim {

std::vector<MuonMatrix> muon_matrices(const Layout& layout, const ModelPart& part) {
  const MuonMatrix whole{.rows = part.out,
                         .columns = part.in,
                         .cut = part.cut != Cut::None,
                         .expert = part.expert,
                         .count = part.expert ? layout.shape.experts.per_rank : 1};
  if (!part.matrix() || !part.muon) return {};
  if (part.head_rows == 0) return {whole};
  std::vector<MuonMatrix> apart;
  for (const std::int64_t rows : part.blocks) {
    if (rows == 0) continue;
    apart.push_back(whole);
    apart.back().rows = rows;
  }
  return apart;
}

MuonCost::MuonCost(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
                   const Network& network)
    : s_(schedule),
      layout_(layout),
      compute_(compute),
      network_(network),
      of_bucket_(schedule.buckets.size()) {
  for (const BucketTensor& at : schedule.tensors) {
    const SegmentInfo& segment =
        schedule.segments[at.stage.index()][static_cast<std::size_t>(at.segment)];
    if (segment.kind != SegmentKind::Layer) continue;
    const auto tensors = segment_parameters(layout, segment.kind, segment.layer);
    const ParameterTensor& tensor = tensors[static_cast<std::size_t>(at.tensor)];
    if (!tensor.matrix) continue;
    const std::vector<ModelPart> parts = segment_parts(layout.model, segment.kind, segment.layer);
    for (std::int32_t k = 0; k < tensor.parts; ++k) {
      std::ranges::copy(muon_matrices(layout, parts[static_cast<std::size_t>(tensor.part + k)]),
                        std::back_inserter(of_bucket_[at.bucket.index()]));
    }
  }
}

Nanoseconds MuonCost::of(BucketId bucket, RankClass row) {
  const Position position = s_.buckets[bucket.index()].position;
  double ns = 0;
  for (const MuonMatrix& matrix : of_bucket_[bucket.index()]) {
    ns += whole_ns(matrix, row) * share_of(position, matrix.expert, row);
  }
  return to_nanoseconds(ns);
}

double MuonCost::whole_ns(const MuonMatrix& matrix, RankClass row) {
  const auto [at, fresh] = known_.try_emplace(matrix);
  if (!fresh) return at->second;
  double ns = static_cast<double>(compute_.orthogonalize(matrix.rows, matrix.columns).value);
  const Plan& plan = layout_.plan;
  const std::int32_t ranks = matrix.expert ? plan.expert_tensor_parallel : plan.tensor_parallel;
  if (matrix.cut && ranks > 1) {
    const Axis axis = matrix.expert ? Axis::ExpertTensor : Axis::Tensor;
    const CollectiveCost gather = collective_cost(
        OpKind::AllGather, {2 * matrix.rows * matrix.columns}, network_.group(row, axis), network_);
    ns += static_cast<double>(gather.time.value);
  }
  return at->second = ns * static_cast<double>(matrix.count);
}

double MuonCost::share_of(Position position, bool experts, RankClass row) {
  const Plan& plan = layout_.plan;
  const std::int32_t replicas = experts ? plan.expert_replicas() : plan.shards();
  const std::int32_t owners = plan.zero_stage >= 1 ? replicas : 1;
  if (owners == 1) return 1;
  const auto [at, fresh] = share_.try_emplace({position.value, experts});
  if (!fresh) return at->second;
  double all = 0, largest = 0;
  for (std::size_t b = 0; b < of_bucket_.size(); ++b) {
    if (s_.buckets[b].position != position) continue;
    for (const MuonMatrix& matrix : of_bucket_[b]) {
      if (matrix.expert != experts) continue;
      const double ns = whole_ns(matrix, row);
      all += ns;
      largest = std::max(largest, ns / static_cast<double>(matrix.count));
    }
  }
  return at->second = all > 0 ? std::max(1.0 / owners, largest / all) : 0;
}

}  // namespace rehearse::sim
