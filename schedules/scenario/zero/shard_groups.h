// SPDX-License-Identifier: Apache-2.0
// Shards over a part of the replicas: where runtimes differ. torch FSDP2, whose shards are the
// master copy, does for every micro-batch what DeepSpeed, and our executor, do once a step.
#pragma once

#include "schedules/scenario/plan.h"

namespace rehearse {

inline bool shards_once_a_step(const Plan& plan) {
  return !plan.runtime.shards_master_parameters || plan.runtime.performer().plans_arena;
}

// How long a second copy of parameters lives (hpZ of ZeRO++, Wang et al. 2023, arXiv 2306.10209,
// section 3.2). DeepSpeed makes it of what a step gathers first, drops it behind the update, and
// gathers from it whatever comes between, forwards of later micro-batches too
// (deepspeedai/DeepSpeed deepspeed/runtime/zero/partition_parameters.py, _partition_param_sec, and
// stage3.py, invalidate_secondary_tensor, edaa7221). FSDP2 makes it in every forward and drops it
// behind the backward (pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// reshard, 002a76fb).
inline bool keeps_secondary_shards(const Plan& plan) {
  return shards_once_a_step(plan);
}

// Whether what a shard group has summed goes across the groups once a step (MiCS,
// deepspeed/runtime/zero/mics.py: at the boundary of accumulation); FSDP2 reduces it across as
// often as within (foreach_reduce: reduce_scatter, then all_reduce of its output).
inline bool sums_shards_once(const Plan& plan) {
  return shards_once_a_step(plan);
}

}  // namespace rehearse
