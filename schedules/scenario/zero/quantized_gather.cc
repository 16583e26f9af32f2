// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/zero/quantized_gather.h"

#include <algorithm>

namespace rehearse {
namespace {

// DeepSpeed: as few groups as there may be of at most 8,000 values each, a multiple of eight in
// every one (deepspeedai/DeepSpeed deepspeed/runtime/zero/partition_parameters.py,
// CUDAQuantizer.quantize, edaa7221).
std::int64_t deepspeed_groups(std::int64_t values) {
  constexpr std::int64_t kTarget = 8000;
  const std::int64_t eights = values / 8, least = (values + kTarget - 1) / kTarget;
  std::int64_t groups = eights;
  for (std::int64_t i = 1; i * i <= eights; ++i) {
    if (eights % i != 0) continue;
    for (const std::int64_t divisor : {i, eights / i}) {
      if (divisor >= least) groups = std::min(groups, divisor);
    }
  }
  return std::max<std::int64_t>(groups, 1);
}

}  // namespace

std::int64_t gather_scales(const Plan& plan, std::int64_t values, std::int64_t tensors) {
  if (!plan.runtime.performer().plans_arena) return deepspeed_groups(values);
  // The last block of every tensor, of what is padded, and the first of the shard may be short.
  return (values + kGatherBlock - 1) / kGatherBlock + tensors + 2;
}

std::int64_t quantized_bytes(const Plan& plan, std::int64_t values, std::int64_t tensors) {
  return values + 4 * gather_scales(plan, values, tensors);
}

}  // namespace rehearse
