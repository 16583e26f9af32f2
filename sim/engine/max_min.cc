// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/max_min.h"

#include <algorithm>

namespace rehearse::sim {
namespace {

constexpr std::int64_t kOne = std::int64_t{1} << 40;
// What rounding may add to a resource that is exactly full (thirds, sevenths): 1e-9 of it.
constexpr std::int64_t kSlack = 1 << 10;

std::int64_t fixed(double share) {
  return static_cast<std::int64_t>(share * static_cast<double>(kOne) + 0.5);
}

}  // namespace

SharedResources::SharedResources(std::int32_t num_resources, std::int32_t num_slots, bool watched)
    : watched_(watched), flows_(index(num_slots)), resources_(index(num_resources)) {}

bool SharedResources::contended(const Resource& resource) {
  return resource.most > kOne + kSlack;
}

void SharedResources::mark(ResourceId id) {
  Resource& resource = resources_[id.index()];
  if (resource.dirty) return;
  resource.dirty = true;
  dirty_.push_back(id);
}

// Where nothing was scarce and nothing is, every flow keeps its bound.
void SharedResources::mark_if_it_matters(ResourceId id) {
  const Resource& resource = resources_[id.index()];
  if (watched_ || resource.was_contended || contended(resource)) mark(id);
}

void SharedResources::add(std::int32_t slot, std::span<const Demand> demands, double bound) {
  Flow& flow = flows_[index(slot)];
  flow = {.demands = demands, .bound = bound, .rate = bound, .visit = 0};
  for (const Demand& demand : demands) {
    Resource& resource = resources_[demand.resource.index()];
    resource.uses.push_back({slot, demand.share});
    resource.most += fixed(demand.share * bound);
    mark_if_it_matters(demand.resource);
  }
}

void SharedResources::remove(std::int32_t slot) {
  Flow& flow = flows_[index(slot)];
  for (const Demand& demand : flow.demands) {
    Resource& resource = resources_[demand.resource.index()];
    resource.most -= fixed(demand.share * flow.bound);
    const auto use = std::ranges::find(resource.uses, slot, &Use::slot);
    *use = resource.uses.back();
    resource.uses.pop_back();
    mark_if_it_matters(demand.resource);
  }
  flow.demands = {};
  flow.bound = 0;
}

void SharedResources::set_bound(std::int32_t slot, double bound) {
  Flow& flow = flows_[index(slot)];
  if (flow.bound == bound) return;
  for (const Demand& demand : flow.demands) {
    resources_[demand.resource.index()].most +=
        fixed(demand.share * bound) - fixed(demand.share * flow.bound);
    mark(demand.resource);
  }
  flow.bound = bound;
  dirty_flows_.push_back(slot);
}

std::span<const std::int32_t> SharedResources::settle() {
  ++visit_;
  for (const std::int32_t slot : changed_) flows_[index(slot)].changed = false;
  changed_.clear();
  touched_.clear();
  for (const std::int32_t slot : dirty_flows_) {
    if (flows_[index(slot)].bound > 0) solve_from(slot);
  }
  for (const ResourceId id : dirty_) {
    Resource& resource = resources_[id.index()];
    if (resource.was_contended || contended(resource)) {
      for (const Use& use : resource.uses) solve_from(use.slot);
    }
    touched_.push_back(id);
    resource.dirty = false;
    resource.was_contended = contended(resource);
  }
  dirty_flows_.clear();
  dirty_.clear();
  return changed_;
}

void SharedResources::change(std::int32_t slot, double rate) {
  Flow& flow = flows_[index(slot)];
  if (flow.rate == rate) return;
  flow.rate = rate;
  if (flow.changed) return;
  flow.changed = true;
  changed_.push_back(slot);
}

void SharedResources::visit_flow(std::int32_t slot) {
  Flow& flow = flows_[index(slot)];
  if (flow.visit == visit_) return;
  flow.visit = visit_;
  component_.push_back(slot);
}

// The component of the flow, found through contended resources only, then filled.
void SharedResources::solve_from(std::int32_t slot) {
  if (flows_[index(slot)].visit == visit_) return;
  component_.clear();
  component_resources_.clear();
  visit_flow(slot);
  for (std::size_t next = 0; next < component_.size(); ++next) {
    for (const Demand& demand : flows_[index(component_[next])].demands) {
      Resource& resource = resources_[demand.resource.index()];
      if (resource.visit == visit_ || !contended(resource)) continue;
      resource.visit = visit_;
      component_resources_.push_back(demand.resource);
      for (const Use& use : resource.uses) visit_flow(use.slot);
    }
  }
  if (component_resources_.empty()) {
    for (const std::int32_t s : component_) change(s, flows_[index(s)].bound);
    return;
  }
  fill();
}

void SharedResources::fill() {
  for (const ResourceId id : component_resources_) {
    Resource& resource = resources_[id.index()];
    resource.left = 1;
    resource.weight = 0;
    resource.rising = static_cast<std::int32_t>(resource.uses.size());
    for (const Use& use : resource.uses) resource.weight += use.share;
    if (!resource.dirty) touched_.push_back(id);
  }
  for (const std::int32_t slot : component_) flows_[index(slot)].frozen = false;
  double level = 0;
  for (std::size_t rising = component_.size(); rising > 0;) {
    double lowest_bound = 2;
    for (const std::int32_t slot : component_) {
      const Flow& flow = flows_[index(slot)];
      if (!flow.frozen) lowest_bound = std::min(lowest_bound, flow.bound);
    }
    ResourceId first_full{};
    double full_at = lowest_bound;
    for (const ResourceId id : component_resources_) {
      const Resource& resource = resources_[id.index()];
      if (resource.rising == 0) continue;
      // Rounding must not let the level fall: it never does in exact arithmetic.
      const double at = std::max(level, resource.left / resource.weight);
      if (at >= full_at) continue;
      full_at = at;
      first_full = id;
    }
    level = full_at;
    if (!first_full) {
      for (const std::int32_t slot : component_) {
        const Flow& flow = flows_[index(slot)];
        if (flow.frozen || flow.bound > level) continue;
        freeze(slot, flow.bound);
        --rising;
      }
    } else {
      for (const Use& use : resources_[first_full.index()].uses) {
        Flow& flow = flows_[index(use.slot)];
        if (flow.frozen) continue;
        flow.limit = first_full;
        freeze(use.slot, level);
        --rising;
      }
    }
  }
}

void SharedResources::freeze(std::int32_t slot, double rate) {
  Flow& flow = flows_[index(slot)];
  flow.frozen = true;
  for (const Demand& demand : flow.demands) {
    Resource& resource = resources_[demand.resource.index()];
    if (resource.visit != visit_) continue;
    resource.left -= demand.share * rate;
    resource.weight -= demand.share;
    --resource.rising;
  }
  change(slot, rate);
}

double SharedResources::load(ResourceId id) const {
  double load = 0;
  for (const Use& use : resources_[id.index()].uses) {
    load += use.share * flows_[index(use.slot)].rate;
  }
  return load;
}

}  // namespace rehearse::sim
