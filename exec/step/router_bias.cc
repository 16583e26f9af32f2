// SPDX-License-Identifier: Apache-2.0
// What routers add where they choose: the same on all ranks, moved by the counts of a step.
#include <numeric>

#include "exec/step/interpreter.h"

namespace rehearse::exec {

void Interpreter::set_correction(std::vector<float> values) {
  if (values.empty()) return;  // no router has any
  local_.correction = std::move(values);
  const auto bytes = static_cast<std::int64_t>(local_.correction.size() * sizeof(float));
  for (const auto& rank : local_.ranks) {
    local_.device.write(rank->correction, local_.correction.data(), bytes);
  }
}

// An expert that was chosen less often than the mean over the step's batch becomes likelier, and
// the other way round (DeepSeek-V3, arXiv 2412.19437, section 2.1.2; arXiv 2408.15664, algorithm
// 1): bias += rate sign(mean - count). All ranks know the same counts, so they have the same bits.
void Interpreter::balance(const TrainOptions& train, const StepResult& step) {
  if (local_.correction.empty() || train.router_bias_rate == 0) return;
  const auto experts = static_cast<std::size_t>(local_.model.experts.count);
  std::vector<float> moved = local_.correction;
  for (std::int64_t layer = 0; layer < local_.model.layers; ++layer) {
    if (!local_.model.has_experts(layer)) continue;
    const std::size_t first = static_cast<std::size_t>(layer) * experts;
    std::vector<std::int64_t> counts(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      counts[e] = step.expert_rows[first + e];
      if (!step.expert_dropped.empty()) counts[e] += step.expert_dropped[first + e];
    }
    const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    for (std::size_t e = 0; e < experts; ++e) {
      const std::int64_t less = all - counts[e] * static_cast<std::int64_t>(experts);
      if (less == 0) continue;
      const double by = less > 0 ? train.router_bias_rate : -train.router_bias_rate;
      moved[first + e] = static_cast<float>(static_cast<double>(moved[first + e]) + by);
    }
  }
  set_correction(std::move(moved));
}

}  // namespace rehearse::exec
