// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_states.h"

#include <algorithm>

#include "schedules/body/sizes.h"
#include "schedules/ir/stage_index.h"
#include "schedules/scenario/memory/optimizer_state.h"

namespace rehearse::sim {

std::vector<UnitTensors> row_units(const Layout& layout, const std::vector<Stage>& stages,
                                   std::int32_t num_stages) {
  const auto segments = stage_segments(layout, num_stages);
  const bool has_table = std::find(stages.begin(), stages.end(), Stage{0}) != stages.end();
  std::vector<UnitTensors> units;
  for (const Stage stage : stages) {
    std::int16_t number = 0;
    for (const SegmentInfo& segment : segments[stage.index()]) {
      UnitTensors unit{
          .stage = stage, .segment = number++, .kind = segment.kind, .layer = segment.layer};
      for (const ParameterTensor& tensor :
           segment_parameters(layout, segment.kind, segment.layer)) {
        if (tensor.elements <= 0) continue;
        const bool own = tensor.expert && layout.plan.folds_experts();
        unit.elements.push_back(tensor.elements);
        unit.of_experts.push_back(own);
        unit.experts += own ? tensor.elements : 0;
        unit.routed += tensor.expert ? tensor.elements : 0;
        if (segment.kind == SegmentKind::Layer && tensor.matrix) unit.matrices += tensor.elements;
      }
      if (segment.kind == SegmentKind::Head && layout.model.tied_embedding && !has_table) {
        unit.elements.push_back(layout.shape.vocabulary * layout.model.hidden);
        unit.of_experts.push_back(false);
      }
      for (const std::int64_t elements : unit.elements) unit.total += elements;
      units.push_back(std::move(unit));
    }
  }
  return units;
}

std::vector<std::vector<Stage>> stages_of_rows(const Schedule& order) {
  std::vector<std::vector<Stage>> found(static_cast<std::size_t>(order.num_rows()));
  for (std::int32_t row = 0; row < order.num_rows(); ++row) {
    std::vector<bool> runs(static_cast<std::size_t>(order.placement.stages()), false);
    for (const Op& op : order.program({row})) {
      for (const Op& work : work_of(order, op)) {
        if (is_compute(work.kind) && work.stage.value >= 0) runs[work.stage.index()] = true;
      }
    }
    for (std::size_t s = 0; s < runs.size(); ++s) {
      if (runs[s]) {
        found[static_cast<std::size_t>(row)].push_back({static_cast<std::int32_t>(s)});
      }
    }
  }
  return found;
}

std::vector<std::int32_t> backwards_of_stages(const Schedule& order, RankClass row) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(order.placement.stages()));
  for (const Op& op : order.program(row)) {
    for (const Op& work : work_of(order, op)) {
      const bool ends = work.kind == OpKind::Backward || work.kind == OpKind::WeightGradient;
      if (ends && work.stage.value >= 0) ++counts[work.stage.index()];
    }
  }
  return counts;
}

namespace {
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
}  // namespace

Shards::Shards(const Plan& plan)
    : dense(plan.shards()),
      experts(plan.folds_experts() ? plan.expert_replicas() : plan.shards()) {}

std::int64_t Shards::shard(std::int64_t elements, std::int64_t of_experts) const {
  return divide_up(elements - of_experts, dense) + divide_up(of_experts, experts);
}
std::int64_t Shards::padded(std::int64_t elements, std::int64_t of_experts) const {
  return divide_up(elements - of_experts, dense) * dense + divide_up(of_experts, experts) * experts;
}

std::int64_t reduced_elements(const Plan& plan, std::int64_t elements, std::int64_t of_experts) {
  return (plan.replicas() > 1 ? elements - of_experts : 0) +
         (plan.expert_replicas() > 1 ? of_experts : 0);
}

std::int64_t updated_elements(const Plan& plan, std::int64_t elements, std::int64_t of_experts) {
  return plan.zero_stage >= 1 ? Shards(plan).shard(elements, of_experts) : elements;
}

HeldElements held_elements(const MemoryProfile& profile, const Plan& plan, std::int64_t elements,
                           std::int64_t of_experts) {
  const std::int64_t shard = Shards(plan).shard(elements, of_experts);
  HeldElements held{.updated = updated_elements(plan, elements, of_experts)};
  if (plan.holds_shards() || plan.offload.parameters) {
    held.parameters = plan.offload.parameters ? 0 : shard;
    return held;
  }
  held.parameters = elements;
  if (profile.contiguous_gradients) {
    held.gradients = plan.zero_stage >= 2 ? shard : elements;
  } else if (profile.reduction_buckets && !plan.has_parameter_server()) {
    held.buckets = reduced_elements(plan, elements, of_experts);
  }
  return held;
}

std::int64_t expert_state_bytes(const Plan& plan, const std::vector<UnitTensors>& units) {
  std::int64_t elements = 0;
  for (const UnitTensors& unit : units) elements += unit.routed;
  const std::int64_t replicas = Shards(plan).experts;
  const auto held = [&](std::int32_t from_stage) {
    return plan.zero_stage >= from_stage ? divide_up(elements, replicas) : elements;
  };
  return (plan.offload.parameters ? 0 : held(3) * plan.precision.parameters) +
         held(2) * plan.precision.gradients +
         (plan.offload.optimizer ? 0 : state_bytes(plan, held(1)));
}

std::int64_t parameters_of(const std::vector<UnitTensors>& units) {
  std::int64_t sum = 0;
  for (const UnitTensors& unit : units) sum += unit.total;
  return sum;
}

}  // namespace rehearse::sim
