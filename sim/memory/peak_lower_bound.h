// SPDX-License-Identifier: Apache-2.0
// A lower bound of the replay's peak without any order, for a search that rules plans out: states,
// what the micro-batches keep that 1F1B orders must have in flight, and the loss. For thousands of
// plans that share most of their numbers; memory_lower_bound (memory.h) is the same for one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// What the bound needs of a family, before micro-batch and recomputation are chosen.
struct FamilyBound {
  struct Group {  // stages that are counted together: a position's, or one
    std::int64_t states = 0;
    std::int32_t fewest = 0;  // layers of its smallest stage
    bool last = false;        // holds the loss
  };
  std::vector<Group> groups;
  std::int32_t stages = 1, chunks = 1;
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
  // [B] of the whole device: a row that holds these stages and keeps `alive` bytes beside states.
  // REQUIRES: family() was called.
  std::int64_t row_bound(const Plan& plan, const std::vector<std::int32_t>& stages,
                         std::int64_t alive) const;

  // Parameters of one rank [elements]; REQUIRES: family() was called.
  std::int64_t stage_parameters(const Plan& plan, std::int32_t stage, std::int32_t stages) const;
  // Bytes that a layer's forward keeps of a micro-batch; 0: not a framework's plan.
  std::int64_t kept_per_layer(const Plan& plan) {
    return profile_ == nullptr ? 0 : kept(plan).per_layer;
  }
  // The stage with the layers that predict further tokens.
  static std::int32_t predicting(const Plan& plan, std::int32_t stages) {
    return plan.prediction_stage < 0 ? stages - 1 : plan.prediction_stage;
  }
  std::int64_t layer_parameters() const { return layer_[1] > 0 ? layer_[1] : layer_[0]; }

 private:
  struct Kept {
    std::int64_t per_layer = 0, head_peak = 0;
  };
  std::int64_t outside(const Plan& plan) const;  // communicators and context
  const Kept& kept(const Plan& plan);
  void count(const Plan& plan);

  const MemoryProfile* profile_;
  const Transformer& model_;
  std::int32_t capability_;
  bool counted_ = false;
  std::int64_t embedding_ = 0, head_ = 0, table_ = 0, predictions_ = 0;
  std::array<std::int64_t, 2> layer_{};      // dense, with experts
  std::vector<std::int64_t> layers_before_;  // parameters of layers [0, l)
  std::map<std::pair<std::int32_t, Recompute>, Kept> kept_;
};

}  // namespace rehearse::sim
