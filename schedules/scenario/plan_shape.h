// SPDX-License-Identifier: Apache-2.0
// Which order a plan asks the registry for, and of which shape.
#pragma once

#include <string>

#include "schedules/base/result.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// What generates the plan's order: the one that was chosen for a planned schedule, else its
// schedule.
inline const std::string& name_of_order(const Plan& plan) {
  return plan.order.empty() ? plan.schedule : plan.order;
}

// The shape that a plan asks for; durations of planned schedules are the caller's to fill in.
inline Result<ScheduleShape> shape_of(const Plan& plan) {
  const std::string& name = name_of_order(plan);
  const ScheduleInfo* info = find_schedule(name);
  if (info == nullptr) return Error{"schedule: " + unknown_schedule(name, "\"" + name + "\"")};
  return resolve_shape(*info, {.positions = plan.pipeline_parallel,
                               .microbatches = plan.microbatches(),
                               .chunks = plan.virtual_stages,
                               .group_size = plan.microbatch_group_size,
                               .extra_warmup = plan.extra_warmup,
                               .slices = plan.sequence_slices,
                               .pairs = plan.overlap_expert_parallel == ExpertOverlap::Pair,
                               .memory_limit = plan.memory_limit});
}

// Where the stages of the plan's order lie; empty where that is known with the order alone: one
// from a file, one that chooses its placement.
inline Placement placement_of(const Plan& plan) {
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  if (info == nullptr || info->chunks == ChunkRule::Any) return {};
  const std::int32_t p = plan.pipeline_parallel;
  const auto stages = static_cast<std::int32_t>(plan.stage_layers.size());
  return placement_of(*info,
                      {.positions = p, .microbatches = plan.microbatches(), .chunks = stages / p});
}

}  // namespace rehearse
