// Device time of one node of a body that is not a collective.
#pragma once

#include <optional>

#include "schedules/body.h"
#include "sim/kernel_scalars.h"

namespace rehearse::sim {

// One GPU as the kernels see it.
struct ComputeCosts {
  KernelScalars scalars;
  double peak_flops = 0;     // dense, of the plan's compute type; 8 bit: of the 16-bit products
  bool tensor_cores = true;  // false: fp32 on the vector units, tiles and waves do not apply
  double memory_bytes_per_s = 0;
  std::int32_t sms = 0;
  double clock = 1;  // power: share of the full tensor clock, (0, 1]
  AttentionKernel attention = AttentionKernel::Flash2;
  bool fp8 = false;           // nodes with fp8 run in 8 bit
  std::int64_t sequence = 0;  // of attention, for its length term [tokens]
};

struct NodeCost {
  double ns = 0;
  CostLevel level = CostLevel::Formula;
  double tensor_ns = 0;  // of `ns` at full clock: what the clock divides
  double flops16 = 0;    // FLOPs in units of one 16-bit FLOP's energy
};

// REQUIRES: not a collective.
NodeCost price_node(const ComputeCosts& costs, const Node& node);

}  // namespace rehearse::sim
