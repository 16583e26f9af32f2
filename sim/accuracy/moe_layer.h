// SPDX-License-Identifier: Apache-2.0
// Measured cases of the form `moe_layer`: one layer of experts on one rank, router to combine.
//
// The case itself says what a plan's language will say of experts; its words are the sources' (the
// dispatcher "flex, DeepEP") or ours. Times are those of bursts (expert_kernels.h: burst_costs), as
// the benchmarks run them.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/pricing/expert_layer.h"

namespace rehearse::sim {

struct MoeLayerCase {
  ExpertLayer layer;
  std::int32_t gpus = 1, expert_parallel = 1;
  ClusterSource cluster;
};

// `value`: the object under the key, checked against moe_layer_key_table(). What it asks for and
// nobody prices is a fault in `report`: file, line, key.
MoeLayerCase read_moe_layer(const JsonValue& value, JsonReport& report);

// Errors: the cluster's files.
Result<ExpertLayerCost> predict_moe_layer(const MoeLayerCase& entry);

}  // namespace rehearse::sim
