// SPDX-License-Identifier: Apache-2.0
// What a pair of a forward and a backward with experts hides: two streams, layer by layer.
//
// DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) and Megatron-LM's
// overlap_moe_expert_parallel_comm (model_chunk_schedule_plan.py) run the forward of micro-batch x
// beside the backward of y, so that one computes while the other's tokens travel:
//   communication  combine_bwd(y)   | dispatch_fwd(x)  dispatch_bwd(y)          | combine_fwd(x)
//   compute        attention_fwd(x) | experts_bwd(y)  weight_grad(y)  experts_fwd(x) |
//   attention_bwd(y)
// Each stream runs its pieces in this order; a piece waits for the one that made its input. What
// runs side by side slows both down: kernels share SMs and memory bandwidth with the copies.
//
// A pair of stages is a list of such layers, forwards from the first on, backwards from the last
// on; a dense layer has no communication. Whoever prices a pair of bodies cuts each at its
// all-to-all nodes into these pieces; warm-up and cool-down, which have no pair, hide nothing.
#pragma once

#include <span>

namespace rehearse::sim {

// One layer's forward of x and one layer's backward of y. [ns], each alone.
struct PairedLayers {
  double attention_forward = 0;  // all that computes before the dispatch: norms and router too
  double dispatch_forward = 0, experts_forward = 0, combine_forward = 0;
  double combine_backward = 0, experts_backward = 0, weight_gradient = 0, dispatch_backward = 0;
  double attention_backward = 0;  // all that computes after it, weight gradients too
};

// How much slower each side runs beside the other, [0, 1).
struct PairSharing {
  double compute = 0, communication = 0;
};

struct PairCost {
  double time = 0;        // [ns] = all compute + exposed + contention
  double exposed = 0;     // [ns] communication while nothing computes
  double contention = 0;  // [ns] that compute takes longer
};

PairCost pair_cost(std::span<const PairedLayers> layers, const PairSharing& sharing);
// The same without pairing: everything in turn. [ns]
double unpaired_time(std::span<const PairedLayers> layers);

}  // namespace rehearse::sim
