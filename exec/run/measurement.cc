// SPDX-License-Identifier: Apache-2.0
#include "exec/run/measurement.h"

#include <algorithm>

namespace rehearse::exec {

double Measurement::step_seconds() const {
  if (steps.empty()) return 0;
  const std::size_t first = steps.size() > 1 ? 1 : 0;
  double sum = 0;
  for (std::size_t i = first; i < steps.size(); ++i) sum += steps[i].seconds;
  return sum / static_cast<double>(steps.size() - first);
}

std::int64_t Measurement::peak_counted() const {
  return *std::ranges::max_element(counted);
}

std::int64_t Measurement::peak_planned() const {
  return std::ranges::max_element(schedule->live_peak_bytes)->value;
}

double Measurement::ranks_per_core() const {
  const int computing = std::min(cores, workers * processes);
  return backend == "cuda" ? 1.0
                           : std::max(1.0, static_cast<double>(scenario->plan.gpus()) / computing);
}

}  // namespace rehearse::exec
