// SPDX-License-Identifier: Apache-2.0
// Device time of the kernels of an expert layer on one GPU: grouped products, permutations, 8-bit
// copies, the router.
//
// From the scalars of the GPU type alone (kernel_scalars.h); how many rows there are is the
// caller's business (expert_routing.h), what travels is dispatch_cost.h.
#pragma once

#include <cstdint>

#include "schedules/body/kernel.h"
#include "sim/compute/compute_cost.h"

namespace rehearse::sim {

// C[m,n] += A[m,k] B[k,n] of each of the rank's experts in one launch. Forward and input gradient:
// m rows per expert (their mean: few rows are few tiles); weight gradient: k rows.
struct GroupedProduct {
  std::int64_t experts = 1, m = 0, n = 0, k = 0;
  GemmRole role = GemmRole::Forward;
  bool block_fp8 = false;   // operands in 8 bit, a scale for 128 (x 128) values
  bool accumulates = true;  // a weight gradient is added in fp32 to what is there
};
// Tiles of all experts are dealt to the SMs together, so the last wave is that of the sum; all
// weights are read once. 8 bit: rates of DeepGEMM's kernels.
NodeCost grouped_product_cost(const ComputeCosts& costs, const GroupedProduct& product);

// Rows of `hidden` 16-bit values copied to another order, or summed into one another.
NodeCost permutation_cost(const ComputeCosts& costs, double rows_read, double rows_written,
                          std::int64_t hidden);
// 16-bit values become 8-bit ones, by rows for one product and by columns for another.
NodeCost quantisation_cost(const ComputeCosts& costs, double values);
// U (gate and up where `gated`) becomes the activation times the router's weight, or its gradients.
NodeCost expert_activation_cost(const ComputeCosts& costs, double rows, std::int64_t width,
                                bool gated, bool backward);
// Logits of `tokens` in fp32, scores, the top k, counts and the auxiliary loss: one pass over the
// tokens (backward: three, with the gradients of tokens and weight) and small kernels.
NodeCost router_cost(const ComputeCosts& costs, std::int64_t tokens, std::int64_t hidden,
                     std::int32_t experts, bool backward);

// A benchmark of one layer: bursts between pauses, where products do not meet the power limit that
// training holds (`burst_fraction`). 16-bit products; `cluster` gives peak, bandwidth and SMs.
ComputeCosts burst_costs(const Cluster& cluster, KernelScalars scalars);

}  // namespace rehearse::sim
