// SPDX-License-Identifier: Apache-2.0
// The second copy of ZeRO-3's parameters, in shards over a few neighbours (hpZ of ZeRO++, Wang et
// al. 2023, arXiv 2306.10209, section 3.2): how long a runtime keeps it.
#pragma once

#include "schedules/scenario/plan.h"

namespace rehearse {

// DeepSpeed makes it of what a step gathers first, drops it behind the update, and gathers from it
// whatever comes between, forwards of later micro-batches too (deepspeedai/DeepSpeed
// deepspeed/runtime/zero/partition_parameters.py, _partition_param_sec, and stage3.py,
// invalidate_secondary_tensor, edaa7221). Our executor does so as well. torch FSDP2, whose shards
// are the master copy, makes it in every forward and drops it behind the backward (pytorch/pytorch
// torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, reshard, 002a76fb).
inline bool keeps_secondary_shards(const Plan& plan) {
  return !plan.runtime.shards_master_parameters || plan.runtime.performer().plans_arena;
}

}  // namespace rehearse
