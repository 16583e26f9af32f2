// SPDX-License-Identifier: Apache-2.0
#include "sim/formulas/expert_load.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "schedules/scenario/expert_plan.h"

namespace rehearse::sim {
namespace {

double mean_of(const std::vector<double>& factors) {
  return std::accumulate(factors.begin(), factors.end(), 0.0) / static_cast<double>(factors.size());
}

// The measured factors of the layers that have experts.
std::vector<double> measured_layers(const Layout& layout) {
  std::vector<double> factors;
  if (layout.plan.expert_routing != ExpertRouting::Measured) return factors;
  const auto all = layout.plan.expert_measured.layers(layout.plan.expert_parallel);
  for (std::size_t layer = 0; layer < all.size(); ++layer) {
    if (layout.model.has_experts(static_cast<std::int64_t>(layer))) factors.push_back(all[layer]);
  }
  return factors;
}

ExpertLoad load_of(const Plan& plan, const std::vector<double>& measured) {
  switch (plan.expert_routing) {
    case ExpertRouting::Balanced:
      return {.balance = LoadBalance::Balanced};
    case ExpertRouting::Uniform:
      return {.balance = LoadBalance::Uniform};
    case ExpertRouting::Factor:
      return {.balance = LoadBalance::Factor, .factor = plan.expert_factor};
    case ExpertRouting::Measured:
      return {.balance = LoadBalance::Factor, .factor = mean_of(measured)};
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

std::vector<double> rows_by_layer(const Layout& layout) {
  if (layout.plan.expert_routing != ExpertRouting::Measured) return {};
  const auto all = layout.plan.expert_measured.layers(layout.plan.expert_parallel);
  std::vector<double> rows(all.begin(), all.end());
  if (layout.plan.expert_capacity > 0) {
    for (double& factor : rows) factor = std::min(factor, layout.plan.expert_capacity);
  }
  return rows;
}

ExpertBalance balance_of(const Layout& layout) {
  const auto& [model, plan, shape] = layout;
  if (model.experts.count == 0) return {};
  return {.routing = shape.experts.routing,
          .load = load_of(plan, measured_layers(layout)),
          .capacity = row_limit(plan),
          .ranks = plan.expert_parallel,
          .brought = static_cast<double>(shape.experts.bringing)};
}

}  // namespace rehearse::sim
