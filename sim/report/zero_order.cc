// SPDX-License-Identifier: Apache-2.0
#include "sim/report/zero_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "sim/memory/arena_memory.h"
#include "sim/memory/memory.h"
#include "sim/predict/left_out.h"

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

// The plan with less of ZeRO. Keys that a stage has other defaults for go back to them.
Plan with_stage(Plan plan, std::int32_t stage) {
  const bool sharded = plan.zero_stage == 3;
  plan.zero_stage = stage;
  if (sharded) {
    if (plan.overlap_gradient_reduce && plan.overlap_parameter_gather) {
      plan.overlap_gradient_reduce = plan.overlap_parameter_gather = false;
      plan.bucket_bytes = 0;
    }
  }
  // Shards of some runtimes have bytes of their own.
  if (plan.precision.name != "custom") plan.precision = precision_named(plan.precision.name, plan);
  if (stage == 0) plan.shard_group = 0;
  if (stage < 3) {
    plan.secondary_shard_group = 0;
    plan.quantized_gather = 16;
    plan.offload.parameters = false;
  }
  return plan;
}

// "ZeRO-2 needs 3.10 GB, ZeRO-1 2.90 GB: at the peak it saves ... and adds ...".
std::string difference(std::int32_t with, const Parts& here, std::int32_t without,
                       const Parts& there) {
  std::string saved, added;
  for (std::size_t part = 0; part < kNumAllocatedParts; ++part) {
    const std::int64_t more = here[part] - there[part];
    std::string& list = more > 0 ? added : saved;
    if (more == 0) continue;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", kAllocatedParts[part],
                        text_of(std::abs(more)));
  }
  return fmt::format("ZeRO-{} needs {}, {} {}: at the peak it {}adds {}", with,
                     text_of(total(here)),
                     without == 0 ? std::string("no sharding") : fmt::format("ZeRO-{}", without),
                     text_of(total(there)), saved.empty() ? "" : "saves " + saved + " and ", added);
}

std::int64_t largest_bucket(const Schedule& s) {
  std::int64_t largest = 0;
  for (const Bucket& bucket : s.buckets) largest = std::max(largest, bucket.padded);
  return largest;
}

const RankMemory& fullest_rank(const MemoryReport& memory) {
  return *std::ranges::max_element(memory.ranks, {}, &RankMemory::peak_allocated);
}

Parts parts_of(const RankMemory& rank) {
  const MemoryParts& parts = rank.parts;
  return {parts.parameters,  parts.gradients, parts.optimizer,
          parts.activations, parts.buffers,   parts.workspace};
}

// A block of the caching allocator is given whole where less than 1 MiB of it would be left, and
// padding makes shards equal: so much of a peak is chance [relative; B].
constexpr double kBlocks = 0.005;
constexpr std::int64_t kLeastBlocks = 2 << 20;

std::string framework_note(const Transformer& model, const Prediction& p, const Cluster& cluster) {
  if (p.memory.ranks.empty()) return {};
  const RankMemory& fullest = fullest_rank(p.memory);
  std::optional<MemoryProfile> read;
  if (p.hardware == nullptr) {
    Result<MemoryProfile> shipped = read_memory_profile(p.plan.runtime.name);
    if (!shipped) return {};
    read = std::move(shipped).value();
  }
  const MemoryProfile& profile = read ? *read : p.hardware->profile(p.plan);
  for (std::int32_t stage = p.plan.zero_stage; stage-- > 0;) {
    const Plan less = with_stage(p.plan, stage);
    const Layout layout(model, less);
    const auto too_near = [&](std::int64_t peak) {
      const auto chance = static_cast<std::int64_t>(kBlocks * static_cast<double>(peak));
      return fullest.peak_allocated <= peak + std::max(chance, kLeastBlocks);
    };
    if (too_near(memory_lower_bound(profile, layout))) continue;
    const Result<MemoryReport> made = memory_of_plan(profile, model, less, cluster);
    if (!made) return {};
    const MemoryReport& memory = made.value();
    if (memory.ranks.empty() || too_near(memory.peak_allocated)) continue;
    const std::string why =
        fullest.at_building
            ? "Its fullest moment is before step 0, while the model is built: parameters are "
              "copied into flat buffers, and both copies live until then"
            : fmt::format(
                  "At this size what {} gathers or reduces whole (a bucket of up to {} "
                  "elements), and copies of its own, weigh more than shards save",
                  p.plan.runtime.title, largest_bucket(p.schedule));
    return difference(p.plan.zero_stage, parts_of(fullest), stage, parts_of(fullest_rank(memory))) +
           ". " + why;
  }
  return {};
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
    return difference(plan.zero_stage, here, stage, there) +
           fmt::format(
               ". At this size what is gathered or reduced whole (a bucket of up to {} "
               "elements) and padding weigh more than shards save",
               largest_bucket(schedule));
  }
  return {};
}

std::string zero_order_note(const Transformer& model, const Prediction& prediction,
                            const Cluster& cluster, const PriceOps& order_by) {
  if (prediction.plan.runtime.performer().plans_arena) {
    return zero_order_note(model, prediction.plan, prediction.schedule, order_by);
  }
  return framework_note(model, prediction, cluster);
}

}  // namespace rehearse::sim
