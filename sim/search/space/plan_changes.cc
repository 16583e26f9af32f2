// SPDX-License-Identifier: Apache-2.0
#include "sim/search/space/plan_changes.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::sim {
namespace {

bool is_open(const PlanRow& row) {
  return row.all || row.smaller != nullptr;
}

JsonValue json(const std::string& text) {
  return parse_json(text, "").value();
}

}  // namespace

Space with_open_keys(Space space, const Plan& plan) {
  std::erase_if(space.plan.members, [](const JsonMember& member) {
    const PlanRow* row = find_plan_row(member.key);
    return row != nullptr && is_open(*row);
  });
  space.lists.clear();
  space.ranges.clear();
  const auto list = [&](std::string_view key, const std::vector<std::string>& values) {
    SpaceKey& made = space.lists.emplace_back(SpaceKey{std::string(key), {}});
    for (const std::string& value : values) made.values.push_back(json(value));
  };
  const auto said = [&](const PlanField& field) {
    const PlanRow& row = plan_row(field);
    if (given_in(space.plan, row) != nullptr) return;
    std::erase_if(space.plan.members, [&](const JsonMember& m) { return m.key == row.key.name; });
    space.plan.members.push_back({std::string(row.key.name), 0, json(value_json(row, plan))});
  };
  said(&Plan::global_batch);
  said(&Plan::runtime);
  list(key_of(&Plan::context_parallel_algorithm),
       {json_quoted(name_of(plan.context_parallel_algorithm))});
  if (space.base.model.experts.count > 0) {
    said(&Plan::expert_parallel);
    said(&Plan::expert_dispatch);
    // Where nobody says it, it follows from tensor_parallel.
    const std::string_view cut = key_of(&Plan::expert_tensor_parallel);
    if (space.plan.given(cut) == nullptr) list(cut, {"null"});
  }
  space.gpus = plan.gpus();

  for (const PlanRow& row : plan_rows()) {
    if (row.smaller != nullptr) list(row.key.name, row.smaller(plan));
  }
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

std::vector<PlanChange> changes_of(const Plan& from, const Plan& to, bool runtime_said,
                                   std::span<const PlanRow> rows) {
  const bool no_pipeline = from.pipeline_parallel == 1 && to.pipeline_parallel == 1;
  std::vector<PlanChange> changes;
  for (const PlanRow& row : rows) {
    if (!is_open(row)) continue;
    const bool of_pipeline =
        row.field == PlanField(&Plan::schedule) || row.field == PlanField(&Plan::virtual_stages);
    if (no_pipeline && of_pipeline) continue;
    const std::string before = value_json(row, from), after = value_json(row, to);
    if (before != after) changes.push_back({std::string(row.key.name), before, after});
  }
  if (!runtime_said && default_runtime(to.zero_stage) != to.runtime.name) {
    const PlanRow& runtime = plan_row(&Plan::runtime);
    changes.push_back({std::string(runtime.key.name), "null", value_json(runtime, to)});
  }
  return changes;
}

std::int32_t changed_keys(const Plan& from, const Plan& to) {
  return changed_family_keys(from, to) + (from.micro_batch != to.micro_batch) +
         (from.recompute != to.recompute);
}

}  // namespace rehearse::sim
