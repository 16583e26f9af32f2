// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/peak_lower_bound.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "schedules/body/sizes.h"
#include "schedules/model/layer_mix.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/zero/shard_groups.h"
#include "sim/formulas/closed_form.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"

namespace rehearse::sim {
namespace {

// A second copy of the shards: whole where the first backward begins, unless it is dropped behind
// every backward.
std::int64_t secondary_bytes(const Plan& plan, std::int64_t parameters) {
  if (plan.secondary_shard_group == 0 || !keeps_secondary_shards(plan)) return 0;
  if (plan.pipeline_parallel > 1) return 0;  // backwards begin before all stages have gathered
  const std::int64_t element = plan.precision.compute == ComputeType::Fp32 ? 4 : 2;
  return element * parameters / plan.secondary_shard_group;
}

// What is there all the time from the second step on, or whenever a backward begins, without what
// is gathered.
std::int64_t resident_bytes(const MemoryProfile& profile, const Plan& plan, std::int64_t parameters,
                            std::int64_t of_experts) {
  const Precision& bytes = plan.precision;
  const HeldElements held = held_elements(profile, plan, parameters, of_experts);
  const std::int64_t state = plan.offload.optimizer ? 0 : state_bytes(plan, held.updated);
  return held.parameters * bytes.parameters + (held.gradients + held.buckets) * bytes.gradients +
         state + secondary_bytes(plan, parameters);
}

// What lies gathered beside the shards at the loss, where one stage holds all units and drops none
// behind its forward.
std::int64_t gathered_bytes(const MemoryProfile& profile, const Plan& plan,
                            std::int64_t parameters) {
  if (!plan.holds_shards() || plan.gathers_twice() || profile.gathered_elements > 0) {
    return 0;
  }
  return parameters * (plan.precision.compute == ComputeType::Fp32 ? 4 : 2);
}

// The stages of every position, or each stage for itself where their places are not known.
std::vector<std::vector<std::int32_t>> stages_together(const Plan& plan, std::int32_t stages) {
  const Placement placement = placement_of(plan);
  std::vector<std::vector<std::int32_t>> groups;
  if (placement.stages() == 0) {
    for (std::int32_t s = 0; s < stages; ++s) groups.push_back({s});
    return groups;
  }
  groups.resize(static_cast<std::size_t>(placement.positions));
  for (std::int32_t s = 0; s < stages; ++s) {
    const auto at = static_cast<std::size_t>(s);
    groups[placement.down[at].index()].push_back(s);
    if (!placement.up.empty()) groups[placement.up[at].index()].push_back(s);
  }
  return groups;
}

bool is_of_layers(std::size_t index) {
  return index == static_cast<std::size_t>(SegmentShape::DenseLayer) ||
         index == static_cast<std::size_t>(SegmentShape::ExpertLayer) || index >= kNumSegmentShapes;
}

std::int32_t layers_of(const StageContent& stage) {
  std::int32_t layers = 0;
  for (std::size_t of = 0; of < stage.segments.size(); ++of) {
    layers += is_of_layers(of) ? stage.segments[of] : 0;
  }
  return layers;
}

}  // namespace

BoundTables::BoundTables(const MemoryProfile* profile, const Transformer& model,
                         std::int32_t compute_capability)
    : profile_(profile),
      model_(model),
      capability_(compute_capability),
      elements_(segment_classes(model)) {}

const BoundTables::Elements& BoundTables::elements_of(const Layout& layout,
                                                      const SegmentInfo& segment) {
  const std::size_t of = segment_class(model_, segment);
  Elements& known = of == static_cast<std::size_t>(SegmentShape::PredictionLayer)
                        ? predictions_[segment.layer]
                        : elements_[of];
  if (known.all >= 0) return known;
  known.all = 0;
  for (const ParameterTensor& tensor : segment_parameters(layout, segment.kind, segment.layer)) {
    const std::int64_t elements = std::max<std::int64_t>(tensor.elements, 0);
    known.all += elements;
    if (tensor.expert && layout.plan.folds_experts()) known.experts += elements;
  }
  return known;
}

std::vector<StageContent> BoundTables::contents_of(const Plan& plan) {
  const Layout layout(model_, plan);
  table_ = layout.shape.vocabulary * model_.hidden;
  std::vector<StageContent> contents;
  for (const auto& stage :
       stage_segments(layout, static_cast<std::int32_t>(plan.stage_layers.size()))) {
    StageContent& content = contents.emplace_back();
    content.segments.resize(elements_.size());
    for (const SegmentInfo& segment : stage) {
      const Elements& elements = elements_of(layout, segment);
      ++content.segments[segment_class(model_, segment)];
      content.parameters += elements.all;
      content.experts += elements.experts;
    }
  }
  return contents;
}

std::int64_t BoundTables::layer_parameters() const {
  if (elements_.size() > kNumSegmentShapes) {  // the largest variant's
    std::int64_t most = 0;
    for (std::size_t of = kNumSegmentShapes; of < elements_.size(); ++of) {
      most = std::max(most, elements_[of].all);
    }
    return most;
  }
  const Elements& experts = elements_[static_cast<std::size_t>(SegmentShape::ExpertLayer)];
  return experts.all > 0 ? experts.all
                         : elements_[static_cast<std::size_t>(SegmentShape::DenseLayer)].all;
}

// A rank that has the head and not the embedding has a copy of a tied table (row_units).
std::int64_t BoundTables::states_of(const FamilyBound& family, const Plan& plan,
                                    const std::vector<std::int32_t>& stages) const {
  std::int64_t parameters = 0, of_experts = 0;
  bool first = false, last = false;
  for (const std::int32_t s : stages) {
    const StageContent& content = family.stages[static_cast<std::size_t>(s)];
    parameters += content.parameters;
    of_experts += content.experts;
    first |= s == 0;
    last |= s + 1 == static_cast<std::int32_t>(family.stages.size());
  }
  if (model_.tied_embedding && last && !first) parameters += table_;
  return resident_bytes(*profile_, plan, parameters, of_experts);
}

FamilyBound BoundTables::family(const Plan& plan) {
  FamilyBound family{.stages = contents_of(plan)};
  if (profile_ == nullptr) return family;
  const std::int32_t p = plan.pipeline_parallel;
  const auto stages = static_cast<std::int32_t>(family.stages.size());
  family.chunks = std::max(stages / p, 1);
  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool whole = info != nullptr && !info->splits_backward;
  family.may_count = p > 1 && whole && plan.sequence_slices <= 1 &&
                     peak_activations(plan.schedule, 0, p, p, family.chunks).has_value();
  for (const std::vector<std::int32_t>& together : stages_together(plan, stages)) {
    FamilyBound::Group group{.states = states_of(family, plan, together),
                             .fewest = std::numeric_limits<std::int32_t>::max()};
    for (const std::int32_t s : together) {
      group.fewest = std::min(group.fewest, layers_of(family.stages[static_cast<std::size_t>(s)]));
      group.last |= s + 1 == stages;
    }
    if (stages == 1) {
      group.states += gathered_bytes(*profile_, plan, family.stages.front().parameters);
    }
    family.groups.push_back(group);
  }
  return family;
}

const BoundTables::Kept& BoundTables::kept(const Plan& plan) {
  const auto [at, fresh] = kept_.try_emplace({plan.micro_batch, plan.recompute});
  if (!fresh) return at->second;
  const Layout layout(model_, plan);
  const auto bytes = [&](SegmentShape shape) {
    ForwardBytes least = segment_forward_bytes(*profile_, layout, shape);
    const ForwardBytes still = segment_forward_bytes(*profile_, layout, shape, /*rotates=*/false);
    least.kept = std::min(least.kept, still.kept);
    return least;
  };
  std::int64_t layer = 0;
  if (const std::int32_t count = variants(model_); count > 0) {
    layer = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t i = 0; i < count; ++i) {
      layer = std::min(layer, layer_forward_bytes(*profile_, layout, i, /*rotates=*/true).kept);
      if (!variant(model_, i).has_attention) continue;  // nothing rotates
      layer = std::min(layer, layer_forward_bytes(*profile_, layout, i, /*rotates=*/false).kept);
    }
  } else {
    layer = bytes(SegmentShape::DenseLayer).kept;
    if (model_.experts.count > 0) layer = std::min(layer, bytes(SegmentShape::ExpertLayer).kept);
  }
  at->second = {layer, bytes(SegmentShape::Head).peak};
  return at->second;
}

std::int64_t BoundTables::allocated_bound(const FamilyBound& family, const Plan& plan) {
  const Kept& bytes = kept(plan);
  const std::int64_t per_layer = plan.offload.activations ? 0 : bytes.per_layer;  // on the host
  const std::int32_t p = plan.pipeline_parallel, m = plan.microbatches();
  std::int64_t bound = 0;
  std::int32_t position = 0;
  for (const FamilyBound::Group& group : family.groups) {
    const std::int32_t in_flight =
        family.may_count ? *peak_activations(plan.schedule, position, p, m, family.chunks) : 1;
    ++position;
    std::int64_t alive = per_layer * group.fewest * in_flight;
    if (group.last) {
      const std::int32_t at_loss =
          family.may_count ? std::min(in_flight, (family.chunks - 1) * std::min(m, p) + 1) : 1;
      alive = std::max(alive, per_layer * group.fewest * at_loss + bytes.head_peak);
    }
    bound = std::max(bound, group.states + alive);
  }
  return bound;
}

std::int64_t BoundTables::row_bound(const FamilyBound& family, const Plan& plan,
                                    const std::vector<std::int32_t>& stages,
                                    std::int64_t alive) const {
  return states_of(family, plan, stages) + alive + outside(plan);
}

std::int64_t BoundTables::states_bound(const FamilyBound& family, const Plan& plan) const {
  if (profile_ == nullptr) return 0;
  std::int64_t most = 0;
  for (const FamilyBound::Group& group : family.groups) most = std::max(most, group.states);
  return most + outside(plan);
}

std::int64_t BoundTables::outside(const Plan& plan) const {
  return communicators_of(model_, plan) * profile_->communicator +
         profile_->context.of(capability_);
}

std::int64_t memory_lower_bound(const MemoryProfile& profile, const Layout& layout) {
  BoundTables tables(&profile, layout.model, /*compute_capability=*/0);
  return tables.allocated_bound(tables.family(layout.plan), layout.plan);
}

}  // namespace rehearse::sim
