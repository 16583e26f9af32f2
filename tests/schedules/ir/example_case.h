// SPDX-License-Identifier: Apache-2.0
// The example of docs/ir.md: tiny in numbers, nasty in structure. 4 layers on 2 positions with 2
// virtual stages, tp 2 with sequence parallelism, dp 2, two micro-batches.
#pragma once

#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse {

inline Transformer example_model() {
  Transformer model;
  model.name = "example";
  model.model_type = "gpt2";
  model.layers = 4;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  model.ffn_hidden = 256;
  model.vocabulary = 250;
  model.max_positions = 32;
  return model;
}

inline Plan example_plan(std::int32_t zero_stage, ComputeType type = ComputeType::Bf16,
                         std::int32_t microbatches = 2) {
  Plan plan;
  plan.tensor_parallel = plan.pipeline_parallel = plan.data_parallel = 2;
  plan.sequence_parallel = true;
  plan.zero_stage = zero_stage;
  plan.schedule = "interleaved_1f1b";
  plan.virtual_stages = 2;
  plan.stage_layers = {1, 1, 1, 1};
  plan.microbatch_group_size = 2;
  plan.micro_batch = 1;
  plan.global_batch = 2 * microbatches;
  plan.sequence_length = 32;
  plan.recompute = Recompute::selective();
  plan.precision = type == ComputeType::Fp32 ? Precision{"fp32", 4, 4, 8, ComputeType::Fp32}
                                             : Precision{"bf16", 2, 4, 12, ComputeType::Bf16};
  plan.padded_vocabulary = 256;
  plan.overlap_gradient_reduce = plan.overlap_parameter_gather = true;
  plan.bucket_bytes = 65536;  // closes a bucket with every layer
  plan.rank_order = {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};
  plan.runtime = runtime_named("rehearse");
  return plan;
}

}  // namespace rehearse
