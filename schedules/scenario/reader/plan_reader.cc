// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/reader/plan_reader.h"

#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/keys/plan_notes.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

void read_experts(const GivenKeys& keys, Plan& plan) {
  read_expert_plan(
      keys.json,
      {.from = keys.report.path(), .model = keys.context.model, .known = keys.context.routings},
      plan, [&](std::string_view key, const std::string& what, bool unsupported) {
        keys.fail(key, what, unsupported);
      });
  if (plan.shard_group > 0 && plan.folds_experts()) {
    keys.fail(&Plan::shard_group, "is not priced together with folded experts", true);
  }
}

}  // namespace

Plan resolve_plan(const JsonValue& plan, const PlanContext& context, JsonReport& report,
                  std::vector<std::string>& warnings) {
  const GivenKeys keys{plan, context, report, warnings};
  Plan read;
  take_plain_keys(plan, read);
  for (const auto step :
       {read_tensor_grid, read_tensor_parallel, read_mesh, read_rank_order, read_shard_group,
        read_schedule, read_batches, read_stage_layers, read_runtime, read_memory, read_precision,
        read_attention, read_recipe, read_overlap, read_experts, read_secondary_shards,
        read_quantized_gather, check_tensor_grid}) {
    step(keys, read);
    if (!report.ok()) return read;  // the first error ends the reading
  }
  for (const IdleKey& idle : keys_without_effect(plan, read)) {
    warnings.push_back("plan." + idle.key + " changes nothing: " + idle.why);
  }
  return read;
}

}  // namespace rehearse
