// SPDX-License-Identifier: Apache-2.0
// A lower bound of the replay's peak without any order, for a search that rules plans out: states,
// what the micro-batches keep that 1F1B orders must have in flight, and the loss. For thousands of
// plans that share most of their numbers; memory_lower_bound (memory.h) is the same for one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// What a stage holds (stage_segments): segments of each class, and their parameters on one rank
// [elements], of a tied table the embedding's copy alone.
struct StageContent {
  std::vector<std::int32_t> segments{};  // by segment_class
  std::int64_t parameters = 0;
  std::int64_t experts = 0;  // of them, what lies with the experts' own replicas
};

// What the bound needs of a family, before micro-batch and recomputation are chosen.
struct FamilyBound {
  struct Group {              // stages that are counted together: a position's, or one
    std::int64_t states = 0;  // and what is gathered until the loss
    std::int32_t fewest = 0;  // layers of its smallest stage
    bool last = false;        // holds the loss
  };
  std::vector<StageContent> stages;
  std::vector<Group> groups;
  std::int32_t chunks = 1;
  bool may_count = false;  // the number of micro-batches in flight may be known
};

// REQUIRES: all plans given have the same sizes but ZeRO stages below 3, schedule and what follows
// from it, micro-batch and recomputation. `profile` may be null (runtime rehearse): bound 0.
class BoundTables {
 public:
  BoundTables(const MemoryProfile* profile, const Transformer& model,
              std::int32_t compute_capability);

  FamilyBound family(const Plan& plan);
  // [B] of the allocator. REQUIRES: `family` is the plan's.
  std::int64_t allocated_bound(const FamilyBound& family, const Plan& plan);
  // [B] of the whole device: allocator, communicators, context.
  std::int64_t lower_bound(const FamilyBound& family, const Plan& plan) {
    return profile_ == nullptr ? 0 : allocated_bound(family, plan) + outside(plan);
  }
  // [B] of it without anything that depends on micro-batch and recomputation: states alone.
  std::int64_t states_bound(const FamilyBound& family, const Plan& plan) const;
  // [B] of the whole device: a row that holds these stages and keeps `alive` bytes beside states.
  // REQUIRES: `family` is the plan's.
  std::int64_t row_bound(const FamilyBound& family, const Plan& plan,
                         const std::vector<std::int32_t>& stages, std::int64_t alive) const;

  // Bytes that a layer's forward keeps of a micro-batch; 0: not a framework's plan.
  std::int64_t kept_per_layer(const Plan& plan) {
    return profile_ == nullptr ? 0 : kept(plan).per_layer;
  }
  // Parameters of one layer on one rank, with experts where the model has any [elements]. REQUIRES:
  // family() was called.
  std::int64_t layer_parameters() const;

 private:
  struct Kept {
    std::int64_t per_layer = 0, head_peak = 0;
  };
  std::int64_t outside(const Plan& plan) const;  // communicators and context
  const Kept& kept(const Plan& plan);
  struct Elements {
    std::int64_t all = -1, experts = 0;  // all: -1, not yet counted
  };
  const Elements& elements_of(const Layout& layout, const SegmentInfo& segment);
  std::vector<StageContent> contents_of(const Plan& plan);
  std::int64_t states_of(const FamilyBound& family, const Plan& plan,
                         const std::vector<std::int32_t>& stages) const;

  const MemoryProfile* profile_;
  const Transformer& model_;
  std::int32_t capability_;
  std::vector<Elements> elements_;                // of a segment of each class
  std::map<std::int64_t, Elements> predictions_;  // by layer, of those that predict further
  std::int64_t table_ = 0;                        // of the table of words
  std::map<std::pair<std::int32_t, Recompute>, Kept> kept_;
};

}  // namespace rehearse::sim
