// SPDX-License-Identifier: Apache-2.0
// Over whom ZeRO shards, and what its backwards gather from.
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

// Fails unless the replicas fall into groups of so many.
bool divides_replicas(const GivenKeys& keys, const PlanField& key, std::int32_t group,
                      const Plan& plan) {
  if (plan.replicas() % group == 0) return true;
  keys.fail(key, number(group) + " does not divide data x context parallel = " +
                     product({plan.data_parallel, plan.context_parallel}) + " = " +
                     number(plan.replicas()));
  return false;
}

}  // namespace

// All replicas share one copy's shards unless the plan says a part of them does.
void read_shard_group(const GivenKeys& keys, Plan& plan) {
  if (keys.given(&Plan::shard_group) == nullptr) return;
  const std::int32_t shards = keys.size(&Plan::shard_group, 0);
  if (!divides_replicas(keys, &Plan::shard_group, shards, plan)) return;
  plan.shard_group = plan.zero_stage == 0 || shards == plan.replicas() ? 0 : shards;
}

// Where nothing is gathered a second time, the key changes nothing, and a note says so.
void read_secondary_shards(const GivenKeys& keys, Plan& plan) {
  if (keys.given(&Plan::secondary_shard_group) == nullptr) return;
  const std::int32_t group = keys.size(&Plan::secondary_shard_group, 0);
  plan.secondary_shard_group = 0;
  if (!plan.gathers_twice() || plan.shards() == 1) return;
  if (!divides_replicas(keys, &Plan::secondary_shard_group, group, plan)) return;
  if (plan.shard_group > 0) {
    return keys.fail(&Plan::secondary_shard_group,
                     "shards lie over " + number(plan.shard_group) +
                         " neighbours already (shard_group): one of the two");
  }
  if (plan.offload.parameters) {
    return keys.fail(&Plan::secondary_shard_group,
                     "is not priced together with parameters in host memory (offload)", true);
  }
  if (plan.folds_experts()) {
    return keys.fail(&Plan::secondary_shard_group, "is not priced together with folded experts",
                     true);
  }
  plan.secondary_shard_group = group;
}

void read_quantized_gather(const GivenKeys& keys, Plan& plan) {
  if (plan.quantized_gather != 8 && plan.quantized_gather != 16) {
    return keys.fail(&Plan::quantized_gather,
                     number(plan.quantized_gather) + " is neither 16 nor 8");
  }
  if (!plan.gathers_units() || plan.shards() == 1) plan.quantized_gather = 16;
}

}  // namespace rehearse
