// SPDX-License-Identifier: Apache-2.0
// What docs/scenario.md names of a plan and no code has yet: refused as that, not as a slip.
#pragma once

#include <array>
#include <string_view>

namespace rehearse::keys {

inline constexpr std::array<std::string_view, 1> kOverlapLater{"tensor_parallel_chunks"};
inline constexpr std::array<std::string_view, 19> kPlanLater{
    "recompute_layers",
    "context_parallel_algorithm",
    "secondary_shard_group",
    "offload_to",
    "tensor_parallel_2d",
    "quantized_gather",
    "chimera_scaling",
    "padding",
    // Megatron-LM's and torch's words for keys of a plan
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "virtual_pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "recompute_granularity",
};
inline constexpr std::array<std::string_view, 1> kOffloadLater{"parameters"};
inline constexpr std::array<std::string_view, 1> kRuntimeLater{"peft"};

}  // namespace rehearse::keys
