// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/planned_times.h"

#include "schedules/body/sizes.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "sim/network/transfer_cost.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {

Result<> price_planned_times(const Transformer& model, const Cluster& cluster,
                             const HardwareTables& tables, Plan& plan) {
  const Layout layout(model, plan);
  const Network network(cluster, tables.collectives, plan, {});
  const Result<ComputeModel> compute =
      ComputeModel::create(cluster, layout, body_collectives(network, layout), tables.scalars);
  if (!compute) return compute.error();
  const auto time = [&](const SegmentInfo& segment, Direction direction) {
    return compute.value().price(make_body(layout, body_shape(layout, segment, direction))).time;
  };
  const bool apart = plan.may_place_recompute() || recomputes_in_advance(plan);
  std::vector<StageTimes> stages;
  for (const auto& segments :
       stage_segments(layout, static_cast<std::int32_t>(plan.stage_layers.size()))) {
    StageTimes& times = stages.emplace_back(StageTimes{{0}, {0}, {0}, {0}, {0}});
    for (const SegmentInfo& segment : segments) {
      times.forward += time(segment, Direction::Forward);
      times.input_gradient += time(segment, Direction::InputGradient);
      times.weight_gradient += time(segment, Direction::WeightGradient);
      times.backward += time(segment, Direction::Backward);
      if (apart) times.recompute += time(segment, Direction::Recompute);
    }
  }
  if (plan.pipeline_parallel > 1) {
    const Path path = network.path(RankClass{0}, RankClass{1});
    plan.planned_transfer = handover_cost(plan, {layout.activation_bytes()}, path,
                                          network.group(RankClass{1}, Axis::Tensor), network)
                                .time;
  }
  plan.planned_stages = std::move(stages);
  return {};
}

}  // namespace rehearse::sim
