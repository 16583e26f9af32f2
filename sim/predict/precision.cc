// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/precision.h"

#include "schedules/scenario/plan_names.h"

namespace rehearse::sim {

std::vector<std::string> precision_warnings(const Plan& plan, const Cluster& cluster) {
  if (plan.precision.compute != ComputeType::Fp8 || cluster.multiplies(ComputeType::Fp8)) return {};
  return {"plan.precision: " + cluster.gpu.name +
          " has no products in 8 bit (gpu.product_types): predicted with those in bf16, and the "
          "casts"};
}

Result<> check_precision(const Plan& plan, const Cluster& cluster) {
  const ComputeType type = plan.precision.compute;
  if (!is_block_scaled(type) || cluster.multiplies(type)) return {};
  std::string has;
  for (std::size_t i = 0; i < kComputeTypeNames.size(); ++i) {
    if (cluster.gpu.multiplies[i])
      has += (has.empty() ? "" : ", ") + std::string(kComputeTypeNames[i]);
  }
  return Error{.message = "plan.precision: " + cluster.gpu.name + " has no products in " +
                          std::string(name_of(type)) + ": its file's gpu.product_types are " + has,
               .unsupported = true};
}

}  // namespace rehearse::sim
