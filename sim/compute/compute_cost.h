// SPDX-License-Identifier: Apache-2.0
// Device time of one node of a body that is not a collective.
#pragma once

#include <optional>
#include <vector>

#include "schedules/body/body.h"
#include "sim/cluster/correction.h"
#include "sim/compute/kernel_scalars.h"
#include "sim/compute/measured_attention.h"
#include "sim/compute/measured_kernels.h"
#include "sim/cost/worker_sharing.h"

namespace rehearse::sim {

class KnownProducts;  // gemm_cost.h

// One GPU as the kernels see it.
struct ComputeCosts {
  KernelScalars scalars;
  double peak_flops = 0;     // dense, of the plan's compute type; 8 bit: of the 16-bit products
  bool tensor_cores = true;  // false: fp32 on the vector units, tiles and waves do not apply
  double memory_bytes_per_s = 0;
  std::int32_t sms = 0;
  std::int32_t piece_sms = 0;  // that a collective in pieces takes (RuntimeTraits)
  bool spares_sms = false;     // products that a sum in pieces follows leave them free throughout
  // Rows of experts over their mean: of the busiest rank, whom all wait for, and on average, less
  // than 1 where a capacity drops some.
  double busiest_rows = 1, mean_rows = 1;
  std::vector<double> busiest_by_layer;  // as a run measured them, else empty: all layers alike
  double clock = 1;                      // power: share of the full tensor clock, (0, 1]
  AttentionKernel attention = AttentionKernel::Flash2;
  MemoryClass norm = MemoryClass::Norm;  // the runtime's kernels of norms
  bool fuses = false;                    // our executor on a GPU (fused_nodes.h)
  bool fp8 = false;                      // nodes with fp8 run in 8 bit, or in 4
  double fp8_factor = 1;                 // rate of their products over those in 8 bit
  // The table that such products are in, and the dense peak that its fractions are of.
  MeasuredTable quantised = MeasuredTable::Fp8Products;
  double quantised_peak_flops = 0;
  std::int64_t sequence = 0;         // of attention, for its length term [tokens]
  double head_rate = 1;              // of attention, by the size of its heads
  double busiest_attention = 1;      // of packed documents: the busiest rank's over the mean's
  AttentionSize attention_size;      // of one rank of our executor
  std::int64_t drops_scores_of = 0;  // its columns of a head's key and value; 0: drops none
  // Our executor's attention was measured there: its points come before the formula.
  std::optional<MeasuredAttention> measured_attention;
  // A CPU with tables of its own kernels: they come first, the rest of this only where they are
  // silent.
  std::optional<MeasuredKernels> measured;
  // Elements are of 16 bits, which such a CPU computes in fp32: a kernel takes what fp32's takes of
  // as many.
  bool widens = false;
  // Time of a CPU's product in the plan's type over that of fp32, which its tables have.
  double products_over_fp32 = 1;
  bool rms_norms = false;
  std::int64_t vocabulary = 0;  // of one rank
  WorkerSharing sharing;
  Correction correction;                    // by a measured step; `host` is not of a node
  KnownProducts* known_products = nullptr;  // of these scalars, of who prices many plans
};

struct NodeCost {
  double ns = 0;
  CostLevel level = CostLevel::Formula;
  MeasuredTable table = MeasuredTable::None;
  double tensor_ns = 0;  // of `ns` at full clock: what the clock divides
  double flops16 = 0;    // FLOPs in units of one 16-bit FLOP's energy
  double shared = 1;     // its time while every worker of a CPU computes, over `ns`
};

// REQUIRES: not a collective.
NodeCost price_node(const ComputeCosts& costs, const Node& node);
// [ns] of it while a collective has so many of the SMs: products alone are slower then.
double ns_beside(const ComputeCosts& costs, const Node& node, std::int32_t taken_sms);
// What a rank computes for a collective before it asks for it: statistics of its part of the
// logits. Only where its kernels were measured (elsewhere they are a small part of the node). Else
// nothing.
NodeCost price_before(const ComputeCosts& costs, const Node& collective);

}  // namespace rehearse::sim
