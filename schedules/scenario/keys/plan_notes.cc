// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_notes.h"

#include <string_view>

namespace rehearse {
namespace {

using Holds = bool (*)(const Plan& plan);

bool on(const JsonValue& value) {
  return value.boolean;
}
bool any(const JsonValue&) {
  return true;
}

bool one_replica(const Plan& plan) {
  return plan.replicas() == 1;
}
bool sharded(const Plan& plan) {
  return plan.zero_stage == 3;
}

bool whole_experts(const Plan& plan) {
  return plan.expert_parallel == 1 && plan.expert_tensor_parallel == 1;
}

struct Pair {
  std::string_view key;                  // below "plan."; "overlap.x": a member of overlap
  bool (*asks)(const JsonValue& value);  // the key's value asks for something
  Holds holds;                           // and this makes it meaningless
  std::string_view why;
};

constexpr Pair kPairs[]{
    {"sequence_parallel", on, [](const Plan& p) { return p.tensor_parallel == 1; },
     "nothing to split: tensor_parallel is 1"},
    {"expert_dispatch", any, whole_experts,
     "nothing is dispatched: every rank has all experts whole"},
    {"expert_routing", any, [](const Plan& p) { return p.expert_parallel == 1; },
     "no rank waits for another's rows: expert_parallel is 1"},
    {"bucket_bytes", any, [](const Plan& p) { return !one_replica(p) && sharded(p); },
     "zero_stage 3 gathers and reduces layer by layer"},
    {"shard_group", any, [](const Plan& p) { return p.zero_stage == 0; },
     "nothing is sharded: zero_stage is 0"},
    {"prefetch", any, [](const Plan& p) { return !sharded(p); },
     "only zero_stage 3 gathers parameters ahead"},
    {"prefetch", any, [](const Plan& p) { return sharded(p) && !p.overlap_parameter_gather; },
     "overlap.parameter_gather is false: nothing is gathered ahead"},
    {"overlap.gradient_reduce", on, one_replica, "no gradients are reduced: there is one replica"},
    {"overlap.parameter_gather", on, one_replica,
     "no parameters are gathered: there is one replica"},
    {"overlap.parameter_gather", on,
     [](const Plan& p) { return !one_replica(p) && p.zero_stage == 0; },
     "no parameters are gathered: zero_stage is 0"},
    {"overlap.tensor_parallel", on, [](const Plan& p) { return p.tensor_parallel == 1; },
     "no collectives to hide: tensor_parallel is 1"},
    {"data_parallel_algorithm",
     [](const JsonValue& value) { return value.text == "parameter_server"; }, one_replica,
     "there is one replica"},
    {"precision", [](const JsonValue& value) { return value.text == "fp16"; }, sharded,
     "zero_stage 3 keeps the same bytes in fp16 as in bf16: 4 + 4 + 8 sharded, gathered in 2"},
};

const JsonValue* find(const JsonValue& plan, std::string_view key) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return plan.given(key);
  const JsonValue* outer = plan.given(key.substr(0, dot));
  return outer == nullptr || !outer->is(JsonKind::Object) ? nullptr
                                                          : outer->given(key.substr(dot + 1));
}

}  // namespace

std::vector<IdleKey> keys_without_effect(const JsonValue& given, const Plan& plan) {
  std::vector<IdleKey> idle;
  for (const Pair& pair : kPairs) {
    const JsonValue* value = find(given, pair.key);
    if (value == nullptr || !pair.asks(*value) || !pair.holds(plan)) continue;
    idle.push_back({std::string(pair.key), std::string(pair.why)});
  }
  return idle;
}

}  // namespace rehearse
