// SPDX-License-Identifier: Apache-2.0
#include "sim/search/report/saved_plan.h"

#include <filesystem>

#include "schedules/base/json_document.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/plan_notes.h"
#include "schedules/scenario/keys/plan_rows.h"

namespace rehearse::sim {
namespace {

// `key`: "prefetch", or "overlap.gradient_reduce". Null is left out in the end.
Json& member(Json& plan, const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? plan[key] : plan[key.substr(0, dot)][key.substr(dot + 1)];
}

// What asks for nothing; what somebody chose by name (a precision) stays, and is said.
void quiet(Json& value) {
  if (value.is_boolean()) value = false;
  if (value.is_number()) value = nullptr;
}

void drop_nulls(Json& object) {
  for (Json::Member& member : object.members()) {
    if (member.value.is_object()) drop_nulls(member.value);
  }
  std::erase_if(object.members(), [](const Json::Member& member) {
    return member.value.is_null() || (member.value.is_object() && member.value.empty());
  });
}

Json said_keys(const Plan& plan, bool experts) {
  const std::string text = plan_json(plan, 0);
  Json keys = Json::parse(text);
  if (const Result<RuntimeTraits> profile = read_runtime(plan.runtime.name, "")) {
    for (const TraitRow& row : kTraitRows) {
      if (row.of_plan && trait_json(row, profile.value()) == trait_json(row, plan.runtime)) {
        keys.erase(row.key.name);
      }
    }
  }
  if (const Result<JsonValue> given = parse_json(text, "")) {
    for (const IdleKey& idle : keys_without_effect(given.value(), plan)) {
      quiet(member(keys, idle.key));
    }
  }
  const bool dispatched = plan.expert_parallel > 1 || plan.expert_tensor_parallel > 1;
  if (!experts || !dispatched) {
    for (const PlanRow& row : plan_rows()) {
      if (row.of_experts) member(keys, path_of(row)) = nullptr;
    }
    for (const PlanRow& row : overlap_rows()) {
      if (row.of_experts) member(keys, path_of(row)) = nullptr;
    }
  }
  drop_nulls(keys);
  return keys;
}

// A member per line, lists on one.
std::string lines_of(const Json& object, const std::string& indent) {
  std::string text;
  for (const auto& [key, value] : object.members()) {
    text += (text.empty() ? "" : ",") + ("\n" + indent + "  ") + json_quoted(key) + ": ";
    text += value.is_object() ? lines_of(value, indent + "  ") : value.dump();
  }
  return "{" + text + "\n" + indent + "}";
}

}  // namespace

std::string scenario_text(const Space& space, const FoundPlan& found, const std::string& name) {
  const ClusterSource& cluster = space.base.cluster;
  Json scenario{{"name", name}, {"model", Json::parse(space.model_json)}};
  scenario["cluster"] =
      cluster.inline_json.empty()
          ? Json(std::filesystem::absolute(cluster.path).lexically_normal().string())
          : Json::parse(cluster.inline_json);
  scenario["gpus"] = found.plan.gpus();
  if (cluster.domain_gpus > 0) scenario["domain_gpus"] = cluster.domain_gpus;
  scenario["plan"] = said_keys(found.plan, space.base.model.experts.count > 0);
  return lines_of(scenario, "") + "\n";
}

}  // namespace rehearse::sim
