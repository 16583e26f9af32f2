// SPDX-License-Identifier: Apache-2.0
#include "sim/report/zero_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "schedules/passes/lower.h"
#include "schedules/passes/plan_order.h"
#include "schedules/scenario/optimizer_state.h"
#include "sim/memory/arena_memory.h"

namespace rehearse::sim {
namespace {

using Parts = std::array<std::int64_t, kNumAllocatedParts>;

std::int64_t total(const Parts& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

// What is alive where most is, over all rows.
Parts fullest(const Schedule& s) {
  Parts most{};
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    for (const Parts& alive : alive_bytes(s, row)) {
      if (total(alive) > total(most)) most = alive;
    }
  }
  return most;
}

std::string text_of(std::int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  return b >= 1e9 ? fmt::format("{:.2f} GB", b * 1e-9) : fmt::format("{:.3f} MB", b * 1e-6);
}

// The plan with less of ZeRO. Keys that ZeRO-3 has other defaults for go back to them.
Plan with_stage(Plan plan, std::int32_t stage) {
  const bool sharded = plan.zero_stage == 3;
  plan.zero_stage = stage;
  if (sharded) {
    if (plan.overlap_gradient_reduce && plan.overlap_parameter_gather) {
      plan.overlap_gradient_reduce = plan.overlap_parameter_gather = false;
      plan.bucket_bytes = 0;
    }
    if (plan.precision.name != "custom") {
      plan.precision = precision_named(plan.precision.name, plan);
    }
  }
  if (stage == 0) plan.shard_group = 0;
  return plan;
}

}  // namespace

std::string zero_order_note(const Transformer& model, const Plan& plan, const Schedule& schedule,
                            const PriceOps& order_by) {
  if (!plan.runtime.performer().plans_arena || plan.zero_stage == 0) return {};
  const Parts here = fullest(schedule);
  for (std::int32_t stage = plan.zero_stage; stage-- > 0;) {
    Plan less = with_stage(plan, stage);
    const Result<Schedule> order = order_of(model, less);
    if (!order) return {};
    const Result<Schedule> lowered = lower(order.value(), {model, less}, {.price = order_by});
    if (!lowered) return {};
    const Parts there = fullest(lowered.value());
    if (total(here) <= total(there)) continue;
    std::string saved, added;
    for (std::size_t part = 0; part < kNumAllocatedParts; ++part) {
      const std::int64_t more = here[part] - there[part];
      std::string& list = more > 0 ? added : saved;
      if (more == 0) continue;
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", kAllocatedParts[part],
                          text_of(std::abs(more)));
    }
    std::int64_t largest = 0;
    for (const Bucket& bucket : schedule.buckets) largest = std::max(largest, bucket.padded);
    return fmt::format(
        "ZeRO-{} needs {}, {} {}: at the peak it {}adds {}. At this size what is gathered or "
        "reduced whole (a bucket of up to {} elements) and padding weigh more than shards save",
        plan.zero_stage, text_of(total(here)),
        stage == 0 ? std::string("no sharding") : fmt::format("ZeRO-{}", stage),
        text_of(total(there)), saved.empty() ? "" : "saves " + saved + " and ", added, largest);
  }
  return {};
}

}  // namespace rehearse::sim
