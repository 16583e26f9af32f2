// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/smaller_values.h"

#include "schedules/base/json_reader.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::smaller_values {

Values sequence_splits(const Plan& plan) {
  return plan.sequence_parallel ? Values{"true"} : Values{"false", "true"};
}

Values zero_stages(const Plan& plan) {
  Values values;
  for (std::int32_t z = plan.zero_stage; z <= 3; ++z) values.push_back(std::to_string(z));
  return values;
}

Values orders(const Plan& plan) {
  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool named = plan.pipeline_parallel > 1 && info != nullptr && !info->planned;
  Values values;
  if (named) values.push_back(json_quoted(plan.schedule));
  if (!named || plan.schedule != "1f1b") values.push_back(json_quoted("1f1b"));
  return values;
}

Values micro_batches(const Plan& plan) {
  Values values;
  for (std::int32_t b = 1; b <= plan.micro_batch; ++b) {
    if (plan.micro_batch % b == 0) values.push_back(std::to_string(b));
  }
  return values;
}

Values recomputations(const Plan& plan) {
  Values values{recompute_json(plan)};
  if (Recompute::selective(plan.runtime.selective_recompute).exceeds(plan.recompute)) {
    values.push_back(json_quoted(kRecomputeNames[1]));
  }
  if (!plan.recompute.is_full()) values.push_back(json_quoted(kRecomputeNames[2]));
  return values;
}

Values offloads(const Plan& plan) {
  Values values{offload_json(plan.offload)};
  for (const Offload other :
       {Offload{}, Offload{.optimizer = true}, Offload{.activations = true}}) {
    if (other != plan.offload) values.push_back(offload_json(other));
  }
  return values;
}

}  // namespace rehearse::smaller_values
