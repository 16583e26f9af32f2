// SPDX-License-Identifier: Apache-2.0
// What it costs to bring tokens to their experts (dispatch) and the results home (combine).
//
// n tokens of h values of B bytes per rank, each to k of E experts that lie on e ranks of N nodes
// (expert_routing.h: D, the ranks or nodes that one token visits):
//   all_to_all    every copy of a token on its own: n k h B of each rank's buffer
//   all_gather    every rank gathers all tokens, and sums what all ranks made: n e h B, received
//   deduplicated  one copy per rank and, over NICs, one per node, which its GPU of equal index
//                 forwards: n D(e) h B over NVLink beside n D(N) h B over NICs (DeepEP, HybridEP)
// The part of these that stays on its rank or node does not travel. t = alpha + the slowest link's
// bytes / bandwidth: forwarding overlaps both (docs/experts.md; deepseek-ai/DeepEP@dd758ca).
// A backward moves the same: gradients to the experts as a dispatch does, and home as a combine.
// Permutations are kernels (expert_kernels.h), not part of this.
//
// A Layout fills DispatchShape in from its plan and model: tokens of the sequence-parallel shard,
// the model's Routing; the group is that of `ep` (deduplicated: of `ep` times `etp`, one flat
// group). Of tokens, hidden and bytes_per_value the product alone counts, so a node that knows its
// payload n k h B asks for {.tokens = payload / k, .hidden = 1, .bytes_per_value = 1}.
#pragma once

#include <cstdint>

#include "sim/formulas/expert_routing.h"
#include "sim/network/collective_cost.h"

namespace rehearse::sim {

enum class Dispatcher : std::uint8_t { AllToAll, AllGather, Deduplicated };

// 8 bit with one fp32 scale for 128 values (DeepSeek-V3, arXiv 2412.19437, section 3.3.3).
inline constexpr double kBlockFp8Bytes = 1 + 4.0 / 128;

struct DispatchShape {
  std::int64_t tokens = 0;     // n, that a rank brings
  std::int64_t hidden = 0;     // h
  double bytes_per_value = 2;  // B: of a dispatch kBlockFp8Bytes where it travels in 8 bit
  Routing routing;
  double load = 1;  // rows of the busiest rank over the mean: it receives, or sends, so much more
};

struct DispatchCost {
  CollectiveCost cost;                             // a rank of the group alone
  std::int64_t scale_up_bytes = 0, nic_bytes = 0;  // that leave a rank over each, on average
};

// One dispatch or one combine; `group`: the ranks that share the experts. REQUIRES: group.ranks
// divides the experts, group.nodes divides group.ranks. One rank costs nothing.
DispatchCost dispatch_cost(Dispatcher dispatcher, const DispatchShape& shape,
                           const GroupShape& group, const Network& network);
// What the all_gather dispatcher's combine is: a reduce-scatter of the same array, in the type of
// the router's weights (fp32: 4 bytes per value).
DispatchCost gathered_combine_cost(const DispatchShape& shape, const GroupShape& group,
                                   const Network& network);
// Before a dispatch by copies: which ranks a token goes to, counted on the device [0 for others].
Nanoseconds layout_time(Dispatcher dispatcher, const Network& network);

}  // namespace rehearse::sim
