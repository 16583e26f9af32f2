// SPDX-License-Identifier: Apache-2.0
// What one layer of experts costs on one rank, forward and backward: router, permutations,
// dispatch, grouped products, combine, shared experts. No attention, no norm, no pipeline.
//
// The op list is Megatron-LM's with its fused permutations and router, and gradients by
// input-gradient and weight-gradient products (docs/experts.md); the parts run one after
// another on the busiest rank, which the others wait for. This needs no schedule: a case of the
// form `moe_layer` fills ExpertLayer in by hand. From a Layout: tokens of a rank's
// sequence-parallel shard, model.experts (count, per_token, groups and kept_groups as Routing;
// ffn_hidden over expert_tensor_parallel), the plan's dispatcher, routing and precision; the group
// is that of `ep`. Expert tensor parallelism (its gathers of rows) is not part of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/compute/expert_kernels.h"
#include "sim/network/dispatch_cost.h"

namespace rehearse::sim {

struct ExpertLayer {
  std::int64_t tokens = 0, hidden = 0;  // n, h
  std::int64_t width = 0;               // f of one expert on this rank
  std::int64_t shared_width = 0;        // of all shared experts together; 0: none
  bool gated = true;                    // SwiGLU: 2 f columns of the first product
  Routing routing;
  ExpertLoad load;
  Dispatcher dispatcher = Dispatcher::AllToAll;
  bool block_fp8 = false;        // products in 8 bit, blocks of 128
  bool fp8_dispatch = false;     // the forward's dispatch travels in 8 bit
  bool pads_in_place = false;    // 8 bit pads rows per expert: by the permutation, not by a copy
  bool accumulates = true;       // weight gradients are added in fp32
  bool overlaps_shared = false;  // shared experts run beside dispatch and combine
};

// One thing that the rank does, in turn.
struct LayerPart {
  std::string_view name;
  double ns = 0;
  bool communicates = false;
  CostLevel level = CostLevel::Formula;
};

struct ExpertLayerCost {
  std::vector<LayerPart> forward, backward;
  DispatchCost dispatch, combine;  // of the forward
  double rows = 0;                 // R of the busiest rank
};

// REQUIRES: `group.ranks` divides the experts.
ExpertLayerCost expert_layer_cost(const ExpertLayer& layer, const ComputeCosts& costs,
                                  const GroupShape& group, const Network& network);

double total_ns(const std::vector<LayerPart>& parts);

}  // namespace rehearse::sim
