// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space/plan_changes.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "schedules/base/json_reader.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"

namespace rehearse::sim {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

// A key that may be changed, and its value as JSON.
struct ChangedKey {
  std::string_view key;
  std::string (*value)(const Plan&);
};
constexpr std::array<ChangedKey, 11> kChangedKeys{{
    {"tensor_parallel", [](const Plan& p) { return number(p.tensor_parallel); }},
    {"pipeline_parallel", [](const Plan& p) { return number(p.pipeline_parallel); }},
    {"context_parallel", [](const Plan& p) { return number(p.context_parallel); }},
    {"data_parallel", [](const Plan& p) { return number(p.data_parallel); }},
    {"schedule", [](const Plan& p) { return json_quoted(p.schedule); }},
    {"virtual_stages", [](const Plan& p) { return number(p.virtual_stages); }},
    {"zero_stage", [](const Plan& p) { return number(p.zero_stage); }},
    {"sequence_parallel",
     [](const Plan& p) -> std::string { return p.sequence_parallel ? "true" : "false"; }},
    {"micro_batch", [](const Plan& p) { return number(p.micro_batch); }},
    {"recompute", recompute_json},
    {"offload", [](const Plan& p) { return json_quoted(name_of(p.offload)); }},
}};

JsonValue json(const std::string& text) {
  return parse_json(text, "").value();
}

}  // namespace

Space with_open_keys(Space space, const Plan& plan) {
  const auto is_open = [](std::string_view key) {
    return std::ranges::find(kChangedKeys, key, &ChangedKey::key) != kChangedKeys.end();
  };
  std::erase_if(space.plan.members, [&](const JsonMember& m) { return is_open(m.key); });
  space.lists.clear();
  space.ranges.clear();
  const auto list = [&](const char* key, const std::vector<std::string>& values) {
    SpaceKey& made = space.lists.emplace_back(SpaceKey{key, {}});
    for (const std::string& value : values) made.values.push_back(json(value));
  };
  const auto said = [&](const char* key, const std::string& value) {
    if (space.plan.given(key) != nullptr) return;
    std::erase_if(space.plan.members, [&](const JsonMember& m) { return m.key == key; });
    space.plan.members.push_back({key, 0, json(value)});
  };
  said("global_batch", number(plan.global_batch));
  said("runtime", json_quoted(plan.runtime.name));
  if (space.base.model.experts.count > 0) {
    said("expert_parallel", number(plan.expert_parallel));
    said("expert_dispatch", json_quoted(name_of(plan.expert_dispatch)));
    // Where nobody says it, it follows from tensor_parallel.
    if (space.plan.given("expert_tensor_parallel") == nullptr) {
      list("expert_tensor_parallel", {"null"});
    }
  }
  space.gpus = plan.gpus();

  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool named = plan.pipeline_parallel > 1 && info != nullptr && !info->planned;
  std::vector<std::string> schedules;
  if (named) schedules.push_back(json_quoted(plan.schedule));
  if (!named || plan.schedule != "1f1b") schedules.push_back(json_quoted("1f1b"));
  list("schedule", schedules);
  std::vector<std::string> stages, modes, batches, offloads{json_quoted(name_of(plan.offload))};
  for (std::int32_t z = plan.zero_stage; z <= 3; ++z) stages.push_back(number(z));
  list("zero_stage", stages);
  for (auto mode = static_cast<std::size_t>(plan.recompute); mode < kRecomputeNames.size();
       ++mode) {
    modes.push_back(json_quoted(kRecomputeNames[mode]));
  }
  list("recompute", modes);
  for (std::int32_t b = 1; b <= plan.micro_batch; ++b) {
    if (plan.micro_batch % b == 0) batches.push_back(number(b));
  }
  list("micro_batch", batches);
  list("sequence_parallel", plan.sequence_parallel ? std::vector<std::string>{"true"}
                                                   : std::vector<std::string>{"false", "true"});
  for (const std::string_view other : kOffloadNames) {
    if (other != name_of(plan.offload)) offloads.push_back(json_quoted(other));
  }
  list("offload", offloads);
  return space;
}

std::int32_t changed_family_keys(const Plan& from, const Plan& to) {
  std::int32_t count =
      (from.tensor_parallel != to.tensor_parallel) +
      (from.pipeline_parallel != to.pipeline_parallel) +
      (from.context_parallel != to.context_parallel) + (from.zero_stage != to.zero_stage) +
      (from.sequence_parallel != to.sequence_parallel) + (from.offload != to.offload);
  const bool pipelined = from.pipeline_parallel > 1 && to.pipeline_parallel > 1;
  return count +
         (pipelined && (from.schedule != to.schedule || from.virtual_stages != to.virtual_stages));
}

std::vector<PlanChange> changes_of(const Plan& from, const Plan& to, bool runtime_said) {
  const bool no_pipeline = from.pipeline_parallel == 1 && to.pipeline_parallel == 1;
  std::vector<PlanChange> changes;
  for (const ChangedKey& key : kChangedKeys) {
    if (no_pipeline && (key.key == "schedule" || key.key == "virtual_stages")) continue;
    const std::string before = key.value(from), after = key.value(to);
    if (before != after) changes.push_back({std::string(key.key), before, after});
  }
  if (!runtime_said && default_runtime(to.zero_stage) != to.runtime.name) {
    changes.push_back({"runtime", "null", json_quoted(to.runtime.name)});
  }
  return changes;
}

std::int32_t changed_keys(const Plan& from, const Plan& to) {
  return changed_family_keys(from, to) + (from.micro_batch != to.micro_batch) +
         (from.recompute != to.recompute);
}

}  // namespace rehearse::sim
