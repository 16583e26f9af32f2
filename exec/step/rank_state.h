// SPDX-License-Identifier: Apache-2.0
// What one rank of this process has, and what all of them share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/backend/backend.h"
#include "exec/body/body_runner.h"
#include "exec/step/offload_file.h"
#include "exec/weights/parameters.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/mesh.h"

namespace rehearse::exec {

struct RankState {
  Rank rank{};
  RankClass row{};
  Coordinates at;
  Folded folded;                                // among the experts
  std::int32_t replica = 0;                     // Mesh::replica: number in the dp group
  std::byte *arena = nullptr, *host = nullptr;  // host: of what the plan keeps there
  OffloadFile drives;                           // likewise; the file of nothing where it does not
  std::vector<std::vector<ComputeOp>> compute;  // per op of the row: none, one or two
  ExpertCounts expert_counts;
  std::span<double> expert_rows;    // of them, rows and dropped
  std::byte* correction = nullptr;  // of the routers, on the device; or none
  // On the host: sums of squares per tensor, the loss, then expert_rows over all ranks.
  std::vector<double> norms;
};

// The ranks of this process and what their ops read. Fixed before the first step.
struct LocalRanks {
  Layout layout;
  const Transformer& model;  // of the layout
  const Plan& plan;
  const Schedule& schedule;
  Device& device;
  Kernels& kernels;
  Mesh mesh;
  std::vector<TensorPlace> places;
  std::int32_t first = 0;  // rank number of ranks[0]
  std::vector<std::unique_ptr<RankState>> ranks;
  // by replica: (micro-batches, slices, tokens)
  std::vector<std::vector<std::int32_t>> inputs, targets;
  std::int64_t slots = 1;         // of the vector of norms, without the rows of experts
  std::vector<float> correction;  // (layers, experts), as every rank has it; empty: no router has

  std::byte* address(const RankState& rank, ValueId value) const {
    const Value& of = schedule.values[value.index()];
    std::byte* const begin = of.home == Home::Nvme   ? rank.drives.data()
                             : of.home == Home::Host ? rank.host
                                                     : rank.arena;
    return begin + of.offset.value;
  }
  float* floats(const RankState& rank, ValueId value) const {
    return reinterpret_cast<float*>(address(rank, value));
  }
  bool holds(std::int32_t rank) const {
    return rank >= first && rank < first + static_cast<std::int32_t>(ranks.size());
  }
  // A bucket's tensors are cut over tp, those of folded experts over e q ranks: which part a rank
  // holds, which of the copies of that part, and how many copies share optimizer states.
  bool folded(const Bucket& bucket) const { return bucket.replicas == GroupKind::ExpertData; }
  std::int32_t part(const RankState& rank, const Bucket& bucket) const {
    return folded(bucket) ? rank.folded.tensor + plan.expert_tensor_parallel * rank.folded.expert
                          : rank.at.tensor;
  }
  std::int32_t replica(const RankState& rank, const Bucket& bucket) const {
    return folded(bucket) ? rank.folded.data : rank.replica;
  }
  std::int32_t shards(const Bucket& bucket) const { return schedule.replicas(bucket); }
  bool sharded(const Bucket& bucket) const { return plan.zero_stage >= 1 && shards(bucket) > 1; }
  // Where shards are over a part of the replicas: which one a rank holds, and whether it stands for
  // the others who update the same, in norms and in files.
  std::int32_t shard(const RankState& rank, const Bucket& bucket) const {
    return replica(rank, bucket) % shards(bucket);
  }
  bool stands_for_all(const RankState& rank, const Bucket& bucket) const {
    return replica(rank, bucket) / (sharded(bucket) ? shards(bucket) : 1) == 0;
  }
  // Type of a gradient or parameter: sums, master copies and what ZeRO-3 keeps are fp32, all else
  // is of the type that is computed in.
  ElementType type_of(const Value& value) const {
    const bool parameter =
        value.kind == ValueKind::FullParameter || value.kind == ValueKind::ParameterShard;
    // What a FETCH brings of it, too; a second copy is numbered by the gather that made it.
    const bool brought = value.kind == ValueKind::ParameterShard && value.instance < 0;
    const bool master = (value.persistent || brought) && plan.zero_stage == 3;
    return parameter && !master ? element_of(plan.precision.compute) : ElementType::Float32;
  }
};

// Elements [begin, end) of a bucket that a rank updates.
struct OwnRange {
  std::int64_t begin = 0, end = 0;
};
OwnRange own_range(const LocalRanks& local, const RankState& rank, const Bucket& bucket);

// Addresses of all compute ops of a rank. REQUIRES: rank.arena is allocated.
void resolve_addresses(const LocalRanks& local, RankState& rank);

// Counts per row what is alive from op to op over the addresses that ops use [B], and that nothing
// alive overlaps. Error: two values that do (ours).
Result<std::vector<std::int64_t>> count_arenas(const Schedule& schedule);

// Performs an op that needs nobody else: fetch, offload, add, norms, optimizer step.
struct StepOptions {
  std::int64_t step = 0;     // 0, 1, ...
  std::int64_t skipped = 0;  // of the steps before it, those without an update
  double learning_rate = 0;  // of this step
  double loss_scale = 0;     // UpdateArguments::loss_scale
  TrainOptions train;
};
void perform_local(const LocalRanks& local, RankState& rank, OpId id, const StepOptions& options);

}  // namespace rehearse::exec
