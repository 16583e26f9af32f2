// SPDX-License-Identifier: Apache-2.0
// The steps of reading a plan, in the order in which each needs those before it: every one fills in
// its part of `plan`, defaults too, or fails.
#pragma once

#include "schedules/scenario/plan.h"

namespace rehearse {

struct GivenKeys;

void read_tensor_grid(const GivenKeys& keys, Plan& plan);
void read_tensor_parallel(const GivenKeys& keys, Plan& plan);
void read_mesh(const GivenKeys& keys, Plan& plan);
void read_shard_group(const GivenKeys& keys, Plan& plan);
void read_schedule(const GivenKeys& keys, Plan& plan);
void read_batches(const GivenKeys& keys, Plan& plan);
void read_stage_layers(const GivenKeys& keys, Plan& plan);
void read_runtime(const GivenKeys& keys, Plan& plan);
void read_memory(const GivenKeys& keys, Plan& plan);
void read_precision(const GivenKeys& keys, Plan& plan);
void read_attention(const GivenKeys& keys, Plan& plan);
void read_recipe(const GivenKeys& keys, Plan& plan);
void read_overlap(const GivenKeys& keys, Plan& plan);
void read_rank_order(const GivenKeys& keys, Plan& plan);
void read_secondary_shards(const GivenKeys& keys, Plan& plan);
void read_quantized_gather(const GivenKeys& keys, Plan& plan);
void check_tensor_grid(const GivenKeys& keys, Plan& plan);

}  // namespace rehearse
