// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/peak_lower_bound.h"

#include <algorithm>
#include <optional>

#include "schedules/body/sizes.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/optimizer_state.h"
#include "sim/formulas/closed_form.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"

namespace rehearse::sim {
namespace {

// What is there all the time from the second step on, without what is gathered.
std::int64_t resident_bytes(const MemoryProfile& profile, const Plan& plan,
                            std::int64_t parameters) {
  const Precision& bytes = plan.precision;
  const bool gathers = plan.holds_shards();
  // Experts may have more replicas than the dense tensors: a bound from below takes the larger.
  const Shards shards(plan);
  const std::int64_t shard = parameters / std::max(shards.dense, shards.experts);
  std::int64_t sum = (gathers ? shard : parameters) * bytes.parameters;
  if (plan.offload != OffloadMode::Optimizer) {
    sum += state_bytes(plan, plan.zero_stage >= 1 || gathers ? shard : parameters);
  }
  if (profile.contiguous_gradients && !gathers) {
    sum += (plan.zero_stage >= 2 ? shard : parameters) * bytes.gradients;
  } else if (profile.reduction_buckets && !gathers &&
             std::min(plan.replicas(), plan.expert_replicas()) > 1) {
    sum += parameters * bytes.gradients;
  }
  return sum;
}

}  // namespace

BoundTables::BoundTables(const MemoryProfile* profile, const Transformer& model,
                         std::int32_t compute_capability)
    : profile_(profile), model_(model), capability_(compute_capability) {}

void BoundTables::count(const Plan& plan) {
  counted_ = true;
  const Layout layout(model_, plan);
  const auto elements = [&](SegmentKind kind, std::int64_t layer) {
    std::int64_t sum = 0;
    for (const ParameterTensor& tensor : segment_parameters(layout, kind, layer)) {
      sum += std::max<std::int64_t>(tensor.elements, 0);
    }
    return sum;
  };
  embedding_ = elements(SegmentKind::Embedding, -1);
  head_ = elements(SegmentKind::Head, -1);
  predictions_ = 0;
  for (std::int64_t i = 0; i < layout.prediction_layers(); ++i) {
    predictions_ += elements(SegmentKind::Layer, model_.layers + i);
  }
  table_ = layout.shape.vocabulary * model_.hidden;
  layers_before_.assign(1, 0);
  for (std::int64_t l = 0; l < model_.layers; ++l) {
    std::int64_t& layer = layer_[model_.has_experts(l) ? 1 : 0];
    if (layer == 0) layer = elements(SegmentKind::Layer, l);
    layers_before_.push_back(layers_before_.back() + layer);
  }
}

// Without the copy of a tied table, which depends on what else the position holds.
std::int64_t BoundTables::stage_parameters(const Plan& plan, std::int32_t stage,
                                           std::int32_t stages) const {
  std::int64_t first = 0;
  for (std::int32_t s = 0; s < stage; ++s) first += plan.stage_layers[static_cast<std::size_t>(s)];
  const std::int64_t last = first + plan.stage_layers[static_cast<std::size_t>(stage)];
  std::int64_t sum = layers_before_[static_cast<std::size_t>(last)] -
                     layers_before_[static_cast<std::size_t>(first)];
  if (stage == 0) sum += embedding_;
  if (stage + 1 == stages) sum += head_;
  if (stage == predicting(plan, stages)) sum += predictions_;
  return sum;
}

FamilyBound BoundTables::family(const Plan& plan) {
  if (!counted_) count(plan);
  FamilyBound family;
  if (profile_ == nullptr) return family;
  const std::int32_t p = plan.pipeline_parallel;
  family.stages = static_cast<std::int32_t>(plan.stage_layers.size());
  family.chunks = std::max(family.stages / p, 1);
  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool whole = info != nullptr && !info->splits_backward;
  family.may_count = p > 1 && whole && plan.sequence_slices <= 1 &&
                     peak_activations(plan.schedule, 0, p, p, family.chunks).has_value();
  const std::int32_t groups = family.may_count || family.stages == 1 ? p : family.stages;
  std::vector<std::int64_t> before(1, 0);
  for (const std::int32_t layers : plan.stage_layers) before.push_back(before.back() + layers);
  for (std::int32_t g = 0; g < groups; ++g) {
    FamilyBound::Group group;
    group.fewest = plan.stage_layers[static_cast<std::size_t>(g)];
    std::int64_t parameters = 0;
    for (std::int32_t s = g; s < family.stages; s += groups) {
      const auto at = static_cast<std::size_t>(s);
      group.fewest = std::min(group.fewest, plan.stage_layers[at]);
      parameters += layers_before_[static_cast<std::size_t>(before[at + 1])] -
                    layers_before_[static_cast<std::size_t>(before[at])];
      if (s == 0) parameters += embedding_;
      if (s == predicting(plan, family.stages)) parameters += predictions_;
      if (s + 1 == family.stages) {
        group.last = true;
        parameters += head_;
        if (model_.tied_embedding && g > 0) parameters += table_;
      }
    }
    group.states = resident_bytes(*profile_, plan, parameters);
    family.groups.push_back(group);
  }
  return family;
}

const BoundTables::Kept& BoundTables::kept(const Plan& plan) {
  const auto [at, fresh] = kept_.try_emplace({plan.micro_batch, plan.recompute});
  if (!fresh) return at->second;
  const Layout layout(model_, plan);
  const auto bytes = [&](SegmentShape shape) {
    ForwardBytes least = forward_bytes(segment_program(*profile_, layout, shape));
    const ForwardBytes still =
        forward_bytes(segment_program(*profile_, layout, shape, /*rotates=*/false));
    least.kept = std::min(least.kept, still.kept);
    return least;
  };
  const ForwardBytes dense = bytes(SegmentShape::DenseLayer);
  std::int64_t layer = dense.kept;
  if (model_.experts.count > 0) layer = std::min(layer, bytes(SegmentShape::ExpertLayer).kept);
  at->second = {layer, bytes(SegmentShape::Head).peak};
  return at->second;
}

std::int64_t BoundTables::allocated_bound(const FamilyBound& family, const Plan& plan) {
  const Kept& bytes = kept(plan);
  const std::int64_t per_layer =
      plan.offload == OffloadMode::Activations ? 0 : bytes.per_layer;  // on the host
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

std::int64_t BoundTables::row_bound(const Plan& plan, const std::vector<std::int32_t>& stages,
                                    std::int64_t alive) const {
  const auto count = static_cast<std::int32_t>(plan.stage_layers.size());
  std::int64_t parameters = 0;
  for (const std::int32_t s : stages) parameters += stage_parameters(plan, s, count);
  return resident_bytes(*profile_, plan, parameters) + alive + outside(plan);
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
