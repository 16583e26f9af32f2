// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/memory/optimizer_state.h"

#include <algorithm>

#include "schedules/scenario/plan_names.h"

namespace rehearse {

Precision precision_named(const std::string& name, const Plan& plan) {
  Precision to{.name = name};
  const auto found = std::ranges::find(kComputeTypeNames, name);
  to.compute = static_cast<ComputeType>(found - kComputeTypeNames.begin());
  const std::int32_t moments = counted_bytes(row_of(plan.optimizer));
  const bool sharded = plan.gathers_units() && plan.runtime.shards_master_parameters;
  if (to.compute == ComputeType::Fp32 || sharded) {  // parameters are their own master copy
    to.parameters = to.gradients = 4;
    to.optimizer = moments;
  } else {
    to.parameters = 2;
    to.gradients = to.compute == ComputeType::Fp16 ? 2 : 4;
    to.optimizer = 4 + moments;
  }
  return to;
}

std::int32_t master_bytes(const Precision& precision) {
  return precision.parameters < 4 ? std::min(4, precision.optimizer) : 0;
}

std::int32_t counted_bytes(const OptimizerRow& row) {
  return 4 * row.counted;
}

std::vector<std::int64_t> moment_bytes(const OptimizerRow& row, const Precision& precision,
                                       std::int64_t elements, std::int64_t others) {
  std::vector<std::int64_t> arrays;
  switch (row.form) {
    case MomentForm::Whole: {
      std::int32_t left = precision.optimizer - master_bytes(precision);
      for (; left >= 4; left -= 4) arrays.push_back(4 * elements);
      if (left > 0) arrays.push_back(left * elements);
      break;
    }
    case MomentForm::EightBit: {
      const std::int64_t scales = (elements + kMomentBlock - 1) / kMomentBlock;
      arrays.assign(2, elements + 4 * scales);
      break;
    }
    case MomentForm::OfMatrices:
      arrays.push_back(4 * elements);
      if (others > 0) arrays.push_back(4 * others);
      break;
  }
  return arrays;
}

std::vector<std::int64_t> moment_bytes(const Plan& plan, std::int64_t elements,
                                       std::int64_t others) {
  return moment_bytes(row_of(plan.optimizer), plan.precision, elements, others);
}

std::int64_t state_bytes(const Plan& plan, std::int64_t elements, std::int64_t others) {
  std::int64_t sum = elements * master_bytes(plan.precision);
  for (const std::int64_t bytes : moment_bytes(plan, elements, others)) sum += bytes;
  return sum;
}

}  // namespace rehearse
