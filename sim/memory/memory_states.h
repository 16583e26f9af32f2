// SPDX-License-Identifier: Apache-2.0
// What a rank holds between steps: parameters, gradients, optimizer state, as lists of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// A unit of ZeRO-3 / FSDP: one segment of one stage of the rank.
struct UnitTensors {
  Stage stage{};
  std::int16_t segment = 0;  // counted in its stage
  SegmentKind kind{};
  std::int64_t layer = -1;
  std::vector<std::int64_t> elements;  // per parameter tensor, on this tensor-parallel rank
  std::vector<bool> of_experts;        // per tensor: it lies with the experts' own replicas
  std::int64_t total = 0;              // sum of `elements`
  std::int64_t experts = 0;            // of it, what lies with the experts' replicas
  std::int64_t routed = 0;             // of it, parameters of routed experts
  std::int64_t matrices = 0;           // of it, of the layers' matrices
};

// All units of the stages that a row runs, in the order of the model. A tied table is held twice
// only where embedding and head lie on different ranks: the head's unit then has a copy.
std::vector<UnitTensors> row_units(const Layout& layout, const std::vector<Stage>& stages,
                                   std::int32_t num_stages);

// Stages of each row of an order, ascending.
std::vector<std::vector<Stage>> stages_of_rows(const Schedule& order);
// Per stage of the order, how often the row runs its backward, to its end: of two directions each
// has its own micro-batches.
std::vector<std::int32_t> backwards_of_stages(const Schedule& order, RankClass row);

std::int64_t parameters_of(const std::vector<UnitTensors>& units);
// Ranks over which ZeRO shards: the dense tensors' replicas, the experts'.
struct Shards {
  std::int64_t dense = 1, experts = 1;
  explicit Shards(const Plan& plan);
  std::int64_t of(bool experts_too) const { return experts_too ? experts : dense; }
  // Elements of a rank's shard.
  std::int64_t shard(std::int64_t elements, std::int64_t of_experts) const;
  // The same of all ranks together, padding included.
  std::int64_t padded(std::int64_t elements, std::int64_t of_experts) const;
};
// How many of a rank's elements have gradients that replicas sum: tensors that one rank alone
// holds have no reduction, and no bucket.
std::int64_t reduced_elements(const Plan& plan, std::int64_t elements, std::int64_t of_experts);

// Elements of each state that a row of so many parameters holds between steps, `of_experts` of them
// with the experts' replicas: what the replay allocates, but for the padding of single tensors.
struct HeldElements {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  // in one buffer
  std::int64_t buckets = 0;    // gradients again, in the buckets of their reduction
  std::int64_t updated = 0;    // by this rank, with master copy and moments
};
HeldElements held_elements(const MemoryProfile& profile, const Plan& plan, std::int64_t elements,
                           std::int64_t of_experts);
// Those that the rank updates, whatever the profile.
std::int64_t updated_elements(const Plan& plan, std::int64_t elements, std::int64_t of_experts);

// [B] of parameters, gradients and optimizer state of routed experts.
std::int64_t expert_state_bytes(const Plan& plan, const std::vector<UnitTensors>& units);

}  // namespace rehearse::sim
