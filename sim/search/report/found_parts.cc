// SPDX-License-Identifier: Apache-2.0
#include "sim/search/report/found_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedules/trace/trace.h"

namespace rehearse::sim {

std::vector<StepPart> parts_of(const FoundPlan& plan) {
  std::vector<StepPart> parts{{"computing", plan.busy_s}};
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    parts.push_back({std::string(kIdleCauseNames[c]), plan.causes_s[c]});
  }
  return parts;
}

std::optional<StepPart> longest_idle(const FoundPlan& plan) {
  const std::vector<StepPart> parts = parts_of(plan);
  const auto longest =
      std::max_element(parts.begin() + 1, parts.end(),
                       [](const StepPart& a, const StepPart& b) { return a.seconds < b.seconds; });
  if (longest->seconds <= 0.005 * plan.step_s) return std::nullopt;
  return *longest;
}

double tokens_per_usd(const FoundPlan& plan) {
  return plan.tokens_per_s * plan.step_s / *plan.usd_per_step;
}

bool near_capacity(const FoundPlan& plan) {
  return near_capacity(plan.peak_device, plan.capacity);
}

std::string_view name_of(Situation situation) {
  constexpr std::string_view kNames[] = {"everything_fits", "state_too_large", "layer_too_large"};
  return kNames[static_cast<std::size_t>(situation)];
}

std::string gigabytes_text(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}
std::string seconds_text(double s) {
  if (s >= 1) return fmt::format("{:.3f} s", s);
  if (s >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}

}  // namespace rehearse::sim
