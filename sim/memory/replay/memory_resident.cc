// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_resident.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/zero/quantized_gather.h"
#include "schedules/scenario/zero/shard_groups.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t experts_of(const std::vector<UnitTensors>& units) {
  std::int64_t sum = 0;
  for (const UnitTensors& unit : units) sum += unit.experts;
  return sum;
}

}  // namespace

ResidentState::ResidentState(const MemoryProfile& profile, const Plan& plan,
                             std::vector<UnitTensors> units, std::vector<std::int32_t> backwards,
                             Flags flags, ReplicaRole role, Ledger& ledger)
    : profile_(profile),
      plan_(plan),
      units_(std::move(units)),
      unit_(units_.size()),
      role_(role),
      ledger_(ledger),
      shards_(plan),
      backwards_per_step_(std::move(backwards)),
      gathers_(plan.holds_shards() || plan.offload.parameters),
      whole_step_(plan.keeps_gathered()),
      has_root_(plan.pipeline_parallel == 1 || whole_step_),
      optimizer_list_(profile.optimizer_list.holds(flags) && row_of(plan.optimizer).counted > 1) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].kind == SegmentKind::Layer) last_layer_ = u;
    root_segments_ += is_root(u);
  }
}

void ResidentState::build() {
  if (role_ == ReplicaRole::Other) return;
  const Precision& bytes = plan_.precision;
  const bool contiguous = plan_.zero_stage >= profile_.contiguous_parameters_from && !gathers_;
  std::vector<Handle> initial;
  for (const UnitTensors& unit : units_) {
    if (plan_.offload.parameters) break;  // in host memory
    for (std::size_t i = 0; i < unit.elements.size(); ++i) {
      const std::int64_t elements = unit.elements[i];
      const std::int64_t held =
          gathers_ ? divide_up(elements, shards_.of(unit.of_experts[i])) : elements;
      initial.push_back(ledger_.allocate(held * bytes.parameters, MemoryPart::Parameters));
    }
  }
  if (contiguous && profile_.flattened_on_host) ledger_.free(initial);
  const std::int64_t total = parameters_of(units_);
  if (contiguous) ledger_.allocate(total * bytes.parameters, MemoryPart::Parameters);
  const HeldElements held = held_elements(profile_, plan_, total, experts_of(units_));
  if (held.gradients > 0) {
    ledger_.allocate(held.gradients * bytes.gradients, MemoryPart::Gradients);
  }
  if (held.buckets > 0) ledger_.allocate(held.buckets * bytes.gradients, MemoryPart::Buffers);
  if (contiguous && !profile_.flattened_on_host) ledger_.free(initial);
  create_master();
}

void ResidentState::create_moments() {
  if (plan_.offload.optimizer || role_ == ReplicaRole::Other) return;
  const double share = no_matrices();
  for (const std::int64_t elements : owned()) {
    const auto others = static_cast<std::int64_t>(static_cast<double>(elements) * share);
    for (const std::int64_t bytes : moment_bytes(plan_, elements, others)) {
      ledger_.allocate(bytes, MemoryPart::Optimizer);
    }
  }
}

double ResidentState::no_matrices() const {
  std::int64_t all = 0, matrices = 0;
  for (const UnitTensors& unit : units_) {
    all += unit.total;
    matrices += unit.matrices;
  }
  return all > 0 ? 1 - static_cast<double>(matrices) / static_cast<double>(all) : 0;
}

void ResidentState::begin_step() {
  ledger_.free(step_gradients_);
  for (Unit& unit : unit_) {
    ledger_.free(unit.shard);
    ledger_.free(unit.unsharded);
  }
  backwards_.assign(units_.size(), 0);
}

// A replica's parameters are dropped with the graph that they are in, its gradients once the root
// has received them; those of the root are added to what earlier micro-batches left.
void ResidentState::begin_microbatch() {
  if (role_ != ReplicaRole::Other) return;
  for (const UnitTensors& unit : units_) {
    for (const std::int64_t elements : unit.elements) {
      replica_.push_back(
          ledger_.allocate(elements * plan_.precision.parameters, MemoryPart::Parameters));
    }
  }
}

void ResidentState::end_microbatch() {
  if (role_ == ReplicaRole::Alike) return;
  ledger_.free(replica_);
  for (Unit& unit : unit_) {
    if (role_ == ReplicaRole::Root && unit.unsharded.empty()) {
      unit.unsharded.swap(unit.own);
    } else {
      ledger_.free(unit.own);
    }
  }
}

void ResidentState::optimizer_step(bool first) {
  if (role_ == ReplicaRole::Other) return;
  ledger_.free(gather_buffer_);
  ledger_.free(reduce_buffer_);
  for (Unit& unit : unit_) ledger_.free(unit.copy);
  if (profile_.fp32_gradients_at_step && plan_.precision.gradients < 4) {
    for (const std::int64_t elements : owned()) {
      step_gradients_.push_back(ledger_.allocate(4 * elements, MemoryPart::Optimizer));
    }
  }
  if (first) create_moments();
  if (optimizer_list_) {  // torch's foreach Adam: the square roots of all second moments
    std::vector<Handle> roots;
    for (const std::int64_t elements : owned()) {
      roots.push_back(ledger_.allocate(4 * elements, MemoryPart::Workspace));
    }
    ledger_.free(roots);
  }
}

void ResidentState::enter(std::size_t unit, std::ptrdiff_t next) {
  if (!gathers_) return;
  finish_gather(unit);
  if (keeps_secondary_shards(plan_)) keep_copy(unit);
  const bool ahead = plan_.overlap_parameter_gather && plan_.prefetch > 0;
  if (next >= 0 && ahead && !by_tensor()) start_gather(static_cast<std::size_t>(next));
}

void ResidentState::leave_forward(std::size_t unit) {
  const bool comes_back = has_root_ && (is_root(unit) || unit == last_layer_);
  const bool whole_unit = plan_.gathers_twice() && !comes_back;
  if (!gathers_ || !(whole_unit || by_tensor())) return;
  if (!keeps_secondary_shards(plan_)) keep_copy(unit);
  ledger_.free(unit_[unit].gathered);
}

// Tensor by tensor, once until it is dropped.
void ResidentState::keep_copy(std::size_t u) {
  if (plan_.secondary_shard_group == 0 || !unit_[u].copy.empty()) return;
  for (const std::int64_t elements : units_[u].elements) {
    unit_[u].copy.push_back(ledger_.allocate(
        element() * divide_up(elements, plan_.secondary_shard_group), MemoryPart::Parameters));
  }
}

void ResidentState::leave_backward(std::size_t u) {
  ++backwards_[u];
  if (!keeps_secondary_shards(plan_)) ledger_.free(unit_[u].copy);
  if (role_ == ReplicaRole::Other ||
      (role_ == ReplicaRole::Root && !profile_.contiguous_gradients)) {
    for (const std::int64_t elements : units_[u].elements) {
      unit_[u].own.push_back(
          ledger_.allocate(plan_.precision.gradients * elements, MemoryPart::Gradients));
    }
    return;
  }
  if (!gathers_) {
    if (!profile_.contiguous_gradients) return keep_gradients(u);
    if (plan_.reduces_each_microbatch()) {  // a bucket of the unit is reduced and dropped
      Handle bucket =
          ledger_.allocate(units_[u].total * plan_.precision.gradients, MemoryPart::Gradients);
      ledger_.free(bucket);
    }
    return;
  }
  if (by_tensor()) return reduce_tensors(u);
  std::vector<Handle> gradients;
  for (const std::int64_t elements : units_[u].elements) {
    gradients.push_back(ledger_.allocate(element() * elements, MemoryPart::Gradients));
  }
  if (whole_step_) {
    sum_unsharded(u, gradients);
  } else if (has_root_ && is_root(u)) {
    collect_root(u, gradients);
  } else {
    reduce(u, units_[u].total, units_[u].experts, gradients);
    ledger_.free(unit_[u].gathered);
  }
}

// Each parameter's gradient: the first backward makes it, later ones add to it, tensor by tensor.
// They stay until the next step begins.
void ResidentState::keep_gradients(std::size_t u) {
  std::vector<Handle>& kept = unit_[u].unsharded;
  const bool first = kept.empty();
  for (const std::int64_t elements : units_[u].elements) {
    Handle gradient = ledger_.allocate(plan_.precision.gradients * elements, MemoryPart::Gradients);
    if (first) {
      kept.push_back(gradient);
    } else {
      ledger_.free(gradient);
    }
  }
  if (plan_.reduces_each_microbatch()) reduce(u, units_[u].total, units_[u].experts, kept);
}

void ResidentState::skip_backwards(std::span<const std::int32_t> passes) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    backwards_[u] += passes[units_[u].stage.index()];
  }
}

void ResidentState::start_gather(std::size_t u) {
  Unit& unit = unit_[u];
  if (!unit.gathered.empty() || unit.in_flight >= 0 || !plan_.holds_shards()) return;
  const std::int64_t padded = shards_.padded(units_[u].total, units_[u].experts);
  unit.in_flight = ledger_.allocate(element() * padded, MemoryPart::Buffers, kGatherStream);
  if (quantizes_gathers(plan_)) {
    unit.quantized = ledger_.allocate(padded, MemoryPart::Buffers, kGatherStream);
  }
  if (!plan_.offload.parameters) return;
  // What has come from the host goes into the buffer of the gather.
  Handle shard = ledger_.allocate(
      plan_.precision.parameters * shards_.shard(units_[u].total, units_[u].experts),
      MemoryPart::Buffers, kGatherStream);
  ledger_.free(shard);
}

// DeepSpeed fetches a module's parameters as it is reached and drops them behind it: at a time
// there is one tensor and the one fetched ahead, at most the two largest.
void ResidentState::gather_tensors(std::size_t u) {
  std::vector<std::int64_t> largest = units_[u].elements;
  std::ranges::sort(largest, std::greater<>());
  std::int64_t gathered = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(largest.size(), plan_.prefetch > 0 ? 2 : 1);
       ++i) {
    if (i > 0 && gathered >= profile_.gathered_elements) break;
    gathered += largest[i];
    unit_[u].gathered.push_back(
        ledger_.allocate(shards_.padded(largest[i], 0) * element(), MemoryPart::Buffers));
  }
}

// Each gradient is copied to the bucket of the reduction and dropped; shards stay.
void ResidentState::reduce_tensors(std::size_t u) {
  if (units_[u].elements.empty()) return;
  const std::int64_t largest = std::ranges::max(units_[u].elements);
  Handle gradient = ledger_.allocate(element() * largest, MemoryPart::Gradients);
  Handle bucket = ledger_.allocate(element() * largest, MemoryPart::Buffers);
  ledger_.free(gradient);
  std::vector<Handle>& kept = unit_[u].shard;
  if (kept.empty()) {
    kept.push_back(ledger_.allocate(
        shards_.shard(units_[u].total, units_[u].experts) * plan_.precision.gradients,
        MemoryPart::Gradients, kReduceStream));
  }
  ledger_.free(bucket);
  ledger_.free(unit_[u].gathered);
}

void ResidentState::finish_gather(std::size_t u) {
  Unit& unit = unit_[u];
  if (!unit.gathered.empty()) return;
  if (by_tensor()) return gather_tensors(u);
  start_gather(u);
  for (const std::int64_t elements : units_[u].elements) {
    unit.gathered.push_back(ledger_.allocate(element() * elements, MemoryPart::Buffers));
  }
  ledger_.free(unit.quantized);
  ledger_.free(gather_buffer_);  // held until the next copy-out
  std::swap(gather_buffer_, unit.in_flight);
}

void ResidentState::sum_unsharded(std::size_t u, std::vector<Handle>& gradients) {
  Unit& unit = unit_[u];
  if (unit.unsharded.empty()) {
    for (const std::int64_t elements : units_[u].elements) {
      unit.unsharded.push_back(
          ledger_.allocate(plan_.precision.gradients * elements, MemoryPart::Gradients));
    }
  }
  ledger_.free(gradients);
  if (backwards_[u] < backwards_per_step_[units_[u].stage.index()]) return;
  reduce(u, units_[u].total, units_[u].experts, unit.unsharded);
  ledger_.free(unit.gathered);
}

void ResidentState::collect_root(std::size_t u, std::vector<Handle>& gradients) {
  root_gradients_.insert(root_gradients_.end(), gradients.begin(), gradients.end());
  root_elements_ += units_[u].total;
  if (++root_seen_ < root_segments_) return;
  reduce(u, root_elements_, 0, root_gradients_);
  root_seen_ = 0;
  root_elements_ = 0;
  for (std::size_t other = 0; other < units_.size(); ++other) {
    if (is_root(other)) ledger_.free(unit_[other].gathered);
  }
}

// As in torch: the flat input lies in the compute stream and is held until the next reduction, the
// shard in the stream of the reduction.
void ResidentState::reduce(std::size_t u, std::int64_t elements, std::int64_t of_experts,
                           std::vector<Handle>& gradients) {
  const std::int64_t shard = shards_.shard(elements, of_experts);
  const Handle input = ledger_.allocate(
      shards_.padded(elements, of_experts) * plan_.precision.gradients, MemoryPart::Buffers);
  ledger_.free(gradients);
  ledger_.free(reduce_buffer_);
  reduce_buffer_ = input;
  Handle output =
      ledger_.allocate(shard * plan_.precision.gradients, MemoryPart::Gradients, kReduceStream);
  std::vector<Handle>& kept = unit_[u].shard;
  if (kept.empty()) {
    kept.push_back(output);
  } else {
    ledger_.free(output);  // added to the shard of earlier micro-batches
  }
}

std::vector<std::int64_t> ResidentState::owned() const {
  std::vector<std::int64_t> tensors;
  const bool flat = plan_.zero_stage >= 1 && !gathers_;
  // What is left, in the dense tensors' and in the experts' flat buffer, of this rank's
  // range.
  const std::int64_t of_experts = experts_of(units_);
  std::array<std::int64_t, 2> left{divide_up(parameters_of(units_) - of_experts, shards_.dense),
                                   divide_up(of_experts, shards_.experts)};
  for (const UnitTensors& unit : units_) {
    for (std::size_t i = 0; i < unit.elements.size(); ++i) {
      const std::int64_t elements = unit.elements[i];
      const bool expert = unit.of_experts[i];
      const std::int64_t mine = gathers_ ? divide_up(elements, shards_.of(expert))
                                : flat   ? std::min(elements, left[expert ? 1 : 0])
                                         : elements;
      left[expert ? 1 : 0] -= flat ? mine : 0;
      if (mine > 0) tensors.push_back(mine);
    }
  }
  return tensors;
}

void ResidentState::create_master() {
  const std::int32_t bytes = master_bytes(plan_.precision);
  if (bytes == 0 || plan_.offload.optimizer) return;
  for (const std::int64_t elements : owned()) {
    ledger_.allocate(bytes * elements, MemoryPart::Optimizer);
  }
}

}  // namespace rehearse::sim
