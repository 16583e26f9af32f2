// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/expert_rows.h"

#include <algorithm>
#include <numeric>

#include "schedules/model/measured_routing.h"

namespace rehearse::viz {

std::span<const std::int64_t> ExpertRows::of(std::int32_t step, std::int32_t layer) const {
  const auto count = static_cast<std::size_t>(experts());
  const std::size_t cell = static_cast<std::size_t>(step) * trace_.expert_layers.size() +
                           static_cast<std::size_t>(layer);
  return trace_.expert_rows.view().subspan(cell * count, count);
}

std::int64_t ExpertRows::rows(StepRange steps, std::int32_t layer, std::int32_t part,
                              std::int32_t parts) const {
  const std::int32_t each = experts() / parts;
  std::int64_t sum = 0;
  for (std::int32_t step = steps.first; step < steps.last; ++step) {
    const auto block =
        of(step, layer)
            .subspan(static_cast<std::size_t>(part * each), static_cast<std::size_t>(each));
    sum = std::accumulate(block.begin(), block.end(), sum);
  }
  return sum;
}

double ExpertRows::over_mean(StepRange steps, std::int32_t layer, std::int32_t part,
                             std::int32_t parts) const {
  const std::int64_t all = rows(steps, layer, 0, 1);
  if (all == 0) return 1;
  return static_cast<double>(rows(steps, layer, part, parts) * parts) / static_cast<double>(all);
}

double ExpertRows::busiest(StepRange steps, std::int32_t layer, std::int32_t parts) const {
  double sum = 0;
  for (std::int32_t step = steps.first; step < steps.last; ++step) {
    sum += busiest_over_mean(of(step, layer), parts);
  }
  return sum / std::max(1, steps.last - steps.first);
}

}  // namespace rehearse::viz
