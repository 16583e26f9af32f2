// SPDX-License-Identifier: Apache-2.0
// What a search keeps of a prediction.
#include <algorithm>

#include "schedules/passes/planned/plan_order.h"
#include "sim/predict/confidence.h"
#include "sim/search/search.h"

namespace rehearse::sim {

FoundPlan summarize(const Prediction& p) {
  FoundPlan found;
  found.plan = p.plan;
  found.step_s = p.step_s;
  found.tokens_per_s = p.tokens_per_s;
  found.bubble_ratio = p.bubble_ratio();
  found.energy_j = p.energy_j;
  found.error_band = p.error_band;
  found.low_s = p.low_s();
  found.high_s = p.high_s();
  found.nearest = p.band.nearest;
  if (p.models) found.features = features_of(p, p.models->cluster);
  found.mfu = p.mfu();
  if (p.usd_per_gpu_hour) found.usd_per_step = *p.usd_per_gpu_hour * p.gpus * p.step_s / 3600;
  found.peak_device = p.memory.peak_device;
  found.capacity = p.memory.capacity;
  found.verdict = p.memory.verdict();
  found.bad_day = p.memory.bad_day.cause;
  found.load = p.memory.load;
  found.remaps = p.remap_s > 0;
  const auto fullest = std::ranges::max_element(p.memory.ranks, {}, &RankMemory::peak_device);
  if (fullest != p.memory.ranks.end()) found.parts = fullest->parts;
  const auto ranks = static_cast<double>(p.bubbles.ranks);
  found.busy_s = static_cast<double>(p.bubbles.busy) * 1e-9 / ranks;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    found.causes_s[c] = static_cast<double>(p.bubbles.causes[c]) * 1e-9 / ranks;
  }
  found.above_bound = above_bound(p.plan, p.order);
  found.communication = p.communication;
  return found;
}

}  // namespace rehearse::sim
