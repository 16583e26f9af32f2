// SPDX-License-Identifier: Apache-2.0
// What a rank holds beside activations while it is replayed: parameters, gradients and optimizer
// state between steps; under ZeRO-3 / FSDP also the gathered copies and reductions of its units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedules/scenario/plan.h"
#include "sim/memory/memory_profile.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/replay/memory_ledger.h"

namespace rehearse::sim {

class ResidentState {
 public:
  // `backwards`: how often units of each stage run backward per step. Other: a replica that holds
  // nothing between its micro-batches.
  ResidentState(const MemoryProfile& profile, const Plan& plan, std::vector<UnitTensors> units,
                std::vector<std::int32_t> backwards, Flags flags, ReplicaRole role, Ledger& ledger);

  void build();  // model and optimizer as they are before the first step, without moments
  void create_moments();
  void begin_step();
  void optimizer_step(bool first);  // first: moments are born
  // Through one GPU: its parameters come, its gradients go.
  void begin_microbatch();
  void end_microbatch();

  bool gathers() const { return gathers_; }
  // A segment's pass starts: its unit's parameters are there, the next unit's (-1: none) come.
  void enter(std::size_t unit, std::ptrdiff_t next);
  void leave_forward(std::size_t unit);
  void leave_backward(std::size_t unit);  // after B, or W where the backward is split
  // Passes that a replay leaves out, per stage.
  void skip_backwards(std::span<const std::int32_t> passes);

 private:
  struct Unit {
    std::vector<Handle> gathered, unsharded, shard;
    std::vector<Handle> own;      // gradients of a micro-batch that goes through one GPU
    std::vector<Handle> copy;     // this rank's part of the second copy
    Handle in_flight = kNoBlock;  // buffer of the gather under way
    Handle quantized = kNoBlock;  // the same in 8 bit
  };

  std::int64_t element() const { return plan_.precision.compute == ComputeType::Fp32 ? 4 : 2; }
  bool is_root(std::size_t unit) const { return units_[unit].kind != SegmentKind::Layer; }
  bool by_tensor() const { return profile_.gathered_elements > 0; }
  void keep_gradients(std::size_t unit);
  void gather_tensors(std::size_t unit);
  void reduce_tensors(std::size_t unit);
  void keep_copy(std::size_t unit);
  void start_gather(std::size_t unit);
  void finish_gather(std::size_t unit);
  void sum_unsharded(std::size_t unit, std::vector<Handle>& gradients);
  void collect_root(std::size_t unit, std::vector<Handle>& gradients);
  // `of_experts` of the `elements` lie with the experts' replicas.
  void reduce(std::size_t unit, std::int64_t elements, std::int64_t of_experts,
              std::vector<Handle>& gradients);
  void create_master();
  double no_matrices() const;  // share of the row's parameters that are of no matrix of a layer
  // Tensors that this rank updates: all of them, its share of each (FSDP), or its range of the flat
  // buffer (distributed optimizer).
  std::vector<std::int64_t> owned() const;

  const MemoryProfile& profile_;
  const Plan& plan_;
  std::vector<UnitTensors> units_;
  std::vector<Unit> unit_;
  ReplicaRole role_;
  Ledger& ledger_;
  Shards shards_;
  std::vector<std::int32_t> backwards_per_step_;  // per stage
  bool gathers_;
  bool whole_step_;  // what is gathered stays, and gradients are summed unsharded, for the step
  // Embedding and head are one unit, gathered like the last layer until its backward. Under a
  // pipeline that gathers for every micro-batch each unit goes with its pass.
  bool has_root_;
  bool optimizer_list_;
  std::size_t last_layer_ = static_cast<std::size_t>(-1);
  // The root unit (embedding and head) is reduced when all of its gradients are there.
  std::int32_t root_segments_ = 0, root_seen_ = 0;
  std::int64_t root_elements_ = 0;
  std::vector<Handle> root_gradients_, step_gradients_;
  std::vector<Handle> replica_;          // Other: parameters of the micro-batch
  std::vector<std::int32_t> backwards_;  // per unit, of this step
  Handle gather_buffer_ = kNoBlock, reduce_buffer_ = kNoBlock;
};

}  // namespace rehearse::sim
