// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/expert_load.h"

#include <algorithm>

#include "schedules/scenario/expert_plan.h"

namespace rehearse::sim {
namespace {

ExpertLoad load_of(const Plan& plan) {
  switch (plan.expert_routing) {
    case ExpertRouting::Balanced:
      return {.balance = LoadBalance::Balanced};
    case ExpertRouting::Uniform:
      return {.balance = LoadBalance::Uniform};
    case ExpertRouting::Factor:
      return {.balance = LoadBalance::Factor, .factor = plan.expert_factor};
  }
  return {};
}

}  // namespace

RowsOfExperts ExpertBalance::rows(double tokens) const {
  const double busiest =
      ranks == 1 ? 1 : busiest_over_mean(load, routing, tokens * brought * ranks, ranks);
  if (capacity <= 0) return {busiest, 1};
  return {std::min(busiest, capacity), std::min(1.0, capacity)};
}

ExpertBalance balance_of(const Layout& layout) {
  const auto& [model, plan, shape] = layout;
  const Experts& experts = model.experts;
  if (experts.count == 0) return {};
  return {.routing = {.experts = static_cast<std::int32_t>(experts.count),
                      .per_token = static_cast<std::int32_t>(experts.per_token),
                      .groups = static_cast<std::int32_t>(experts.groups),
                      .kept_groups = static_cast<std::int32_t>(experts.kept_groups)},
          .load = load_of(plan),
          .capacity = row_limit(plan),
          .ranks = plan.expert_parallel,
          .brought =
              shape.experts.gathers_rows ? static_cast<double>(plan.expert_tensor_parallel) : 1.0};
}

}  // namespace rehearse::sim
