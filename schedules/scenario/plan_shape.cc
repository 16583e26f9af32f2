// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/plan_shape.h"

namespace rehearse {

const std::string& name_of_order(const Plan& plan) {
  return plan.order.empty() ? plan.schedule : plan.order;
}

Result<ScheduleShape> shape_of(const Plan& plan) {
  const std::string& name = name_of_order(plan);
  const ScheduleInfo* info = find_schedule(name);
  if (info == nullptr) return Error{"schedule: " + unknown_schedule(name, "\"" + name + "\"")};
  return resolve_shape(*info, {.positions = plan.pipeline_parallel,
                               .microbatches = plan.microbatches(),
                               .chunks = plan.virtual_stages,
                               .group_size = plan.microbatch_group_size,
                               .extra_warmup = plan.extra_warmup,
                               .slices = plan.sequence_slices,
                               .memory_limit = plan.memory_limit});
}

}  // namespace rehearse
