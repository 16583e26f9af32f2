// SPDX-License-Identifier: Apache-2.0
#include "sim/search/what_holds.h"

#include <fmt/format.h>

#include <cmath>

#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/memory/recompute_parts.h"

namespace rehearse::sim {
namespace {

constexpr std::size_t kMostRemedies = 3;

struct Family {
  PlanField key;
  std::vector<std::string> values;  // JSON, the mildest first
};

// The largest capacity of experts that leaves the allocator its margin: memory grows with the rows,
// from even load to the busiest rank's.
std::vector<std::string> capacities(const MemoryReport& memory) {
  const auto even = static_cast<double>(memory.even_peak_device);
  const auto busiest = static_cast<double>(memory.peak_device);
  const double room = (1 - kNearCapacity) * static_cast<double>(memory.capacity) - even;
  if (room <= 0 || busiest <= even) return {};
  const double most = 1 + (memory.load.rows - 1) * room / (busiest - even);
  const double hundredths = std::floor(100 * most);
  std::vector<std::string> values;
  for (const double less : {0.0, 5.0}) {  // blocks are rounded
    if (hundredths - less >= 100) values.push_back(fmt::format("{:g}", (hundredths - less) / 100));
  }
  return values;
}

std::vector<std::string> more_recomputation(const Plan& plan) {
  if (plan.recompute.is_full()) return {};
  std::vector<std::string> values;
  for (std::size_t part = 0; part < kNumRecomputeParts; ++part) {
    if (plan.recomputes(static_cast<RecomputePart>(part))) continue;
    Plan more = plan;
    more.recompute.add(static_cast<RecomputePart>(part));
    values.push_back(recompute_json(more));
  }
  values.emplace_back("\"full\"");
  return values;
}

std::vector<Family> families(const Prediction& p) {
  const Plan& plan = p.plan;
  const BadDayCause cause = p.memory.bad_day.cause;
  std::vector<Family> found;
  if (cause == BadDayCause::BusiestRank) {
    found.push_back({&Plan::expert_capacity, capacities(p.memory)});
    Family parallel{&Plan::expert_parallel, {std::to_string(2 * plan.expert_parallel)}};
    if (plan.expert_parallel % 2 == 0)
      parallel.values.push_back(std::to_string(plan.expert_parallel / 2));
    found.push_back(std::move(parallel));
  }
  found.push_back({&Plan::recompute, more_recomputation(plan)});
  if (plan.micro_batch % 2 == 0)
    found.push_back({&Plan::micro_batch, {std::to_string(plan.micro_batch / 2)}});
  if (cause == BadDayCause::LongestSample)
    found.push_back({&Plan::context_parallel, {std::to_string(2 * plan.context_parallel)}});
  return found;
}

}  // namespace

std::vector<Remedy> what_holds(const Prediction& tight, const Cluster& cluster,
                               const ScenarioWith& with) {
  std::vector<Remedy> remedies;
  // What the plan left open stays as it was chosen.
  const std::string chosen =
      fmt::format("plan.{}={}", path_of(&Plan::micro_batch), tight.plan.micro_batch);
  for (const Family& family : families(tight)) {
    for (const std::string& value : family.values) {
      if (remedies.size() == kMostRemedies) return remedies;
      const Result<Scenario> changed =
          with({chosen, fmt::format("plan.{}={}", path_of(family.key), value)});
      if (!changed) continue;
      const Result<Prediction> made =
          predict(changed.value(), cluster, {.timeline = false, .lifetimes = false});
      if (!made || made.value().memory.verdict() != Verdict::Yes) continue;
      remedies.push_back({path_of(family.key), value, made.value().memory.peak_device});
      break;
    }
  }
  return remedies;
}

}  // namespace rehearse::sim
