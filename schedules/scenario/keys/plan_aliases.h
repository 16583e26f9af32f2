// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's and torch's words for keys of a plan, which a file or --set may say instead.
#pragma once

#include <string_view>

#include "schedules/base/json_reader.h"

namespace rehearse {

// "tensor_model_parallel_size": "tensor_parallel"; any other word as it is.
std::string_view plan_key(std::string_view word);

// The members of a plan by their own names. An error is in the report where two words say one key.
void rename_plan_keys(JsonValue& plan, JsonReport& report);

// Megatron-LM's --num-layers-per-virtual-pipeline-stage, which is no key: virtual_stages are the
// layers of a position over it.
inline constexpr std::string_view kLayersPerVirtualStage = "num_layers_per_virtual_pipeline_stage";

}  // namespace rehearse
