// SPDX-License-Identifier: Apache-2.0
#include "sim/search/equal_plans.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace rehearse::sim {
namespace {

// Everything that a plan has to turn on.
std::int32_t habits(const Plan& p) {
  const bool on[] = {p.tensor_parallel > 1,
                     p.pipeline_parallel > 1,
                     p.context_parallel > 1,
                     p.zero_stage > 0,
                     p.sequence_parallel && p.tensor_parallel > 1,
                     p.virtual_stages > 1,
                     p.recompute.any(),
                     p.offload.any()};
  return static_cast<std::int32_t>(std::ranges::count(on, true));
}

auto machinery(const Plan& p) {
  return std::tuple(habits(p), p.pipeline_parallel * p.virtual_stages, p.tensor_parallel,
                    p.context_parallel, p.zero_stage);
}

}  // namespace

bool simpler(const Plan& a, const Plan& b) {
  return machinery(a) < machinery(b);
}

std::vector<FoundPlan> merge_equal(std::vector<FoundPlan> by_time, double difference) {
  std::vector<FoundPlan> rows;
  for (std::size_t begin = 0; begin < by_time.size();) {
    const double limit = by_time[begin].seconds_per_token() * std::exp(difference);
    std::size_t end = begin + 1, simplest = begin;
    for (; end < by_time.size() && by_time[end].seconds_per_token() < limit; ++end) {
      if (simpler(by_time[end].plan, by_time[simplest].plan)) simplest = end;
    }
    FoundPlan row = by_time[simplest];
    for (std::size_t i = begin; i < end; ++i) {
      if (i != simplest) row.equal.push_back({by_time[i].plan, by_time[i].step_s});
    }
    rows.push_back(std::move(row));
    begin = end;
  }
  return rows;
}

}  // namespace rehearse::sim
