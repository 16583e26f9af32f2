// SPDX-License-Identifier: Apache-2.0
// Whose memory and kernels are predicted.
#include <algorithm>

#include "schedules/model/layer_mix.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

// The stage of ZeRO that a document's value says, of a list or {"min", "max"} the lowest.
std::int64_t lowest_stage(const JsonValue& value) {
  if (value.is(JsonKind::Integer)) return value.integer;
  if (value.is(JsonKind::Object)) {
    const JsonValue* least = value.given("min");
    return least == nullptr ? 0 : lowest_stage(*least);
  }
  std::int64_t lowest = value.items.empty() ? 0 : 3;
  for (const JsonValue& item : value.items) lowest = std::min(lowest, lowest_stage(item));
  return lowest;
}

void read_profile(const GivenKeys& keys, Plan& plan) {
  const JsonValue* named = keys.given(&Plan::runtime);
  const std::string name =
      named != nullptr ? named->text : keys.context.runtime.value_or(RuntimeTraits{}.name);
  const auto known = std::ranges::find(keys.context.runtimes, name, &RuntimeTraits::name);
  if (known != keys.context.runtimes.end()) {
    plan.runtime = *known;
    return;
  }
  Result<RuntimeTraits> read = read_runtime(name, keys.report.path());
  if (!read) return keys.fail(&Plan::runtime, read.error().message);
  plan.runtime = std::move(read).value();
}

void refuse_predictions(const GivenKeys& keys, const Plan& plan) {
  const JsonValue* layout = keys.given(&Plan::stage_layers);
  if (plan.runtime.performer().predicts_further_tokens || layout == nullptr ||
      !layout->is(JsonKind::String))
    return;
  if (layout->text.find('m') == std::string::npos) return;
  keys.fail(&Plan::stage_layers,
            "runtime " + plan.runtime.name + " trains without prediction layers: there is no m",
            true);
}

void refuse_stage(const GivenKeys& keys, const Plan& plan) {
  if (plan.pipeline_parallel == 1 || plan.zero_stage <= plan.runtime.pipeline_zero_stage) return;
  keys.fail(&Plan::zero_stage, number(plan.zero_stage) + " with pipeline_parallel " +
                                   number(plan.pipeline_parallel) + ": runtime " +
                                   plan.runtime.name + " runs a pipeline with zero_stage " +
                                   number(plan.runtime.pipeline_zero_stage) + " at most");
}

// What bodies of ours, or a profile's script of a layer, lack.
void refuse_layers(const GivenKeys& keys, const Plan& plan) {
  if (keys.context.model == nullptr || plan.runtime.layer_kinds) return;
  const Transformer& model = *keys.context.model;
  const std::string what = beyond_plain_layers(model);
  if (what.empty()) return;
  keys.fail(&Plan::runtime,
            "model_type " + model.model_type + " has " + what + "; runtime " + plan.runtime.name +
                " has attention, MLP and experts alone: \"megatron\" prices it",
            true);
}

}  // namespace

std::string runtime_of_file(const JsonValue& scenario) {
  const JsonValue* plan = scenario.is(JsonKind::Object) ? scenario.given("plan") : nullptr;
  const JsonValue* stage =
      plan != nullptr && plan->is(JsonKind::Object) ? given_in(*plan, &Plan::zero_stage) : nullptr;
  return std::string(default_runtime(stage == nullptr ? 0 : lowest_stage(*stage)));
}

// The profile, and what the plan says over it. Our executor is what it is: a plan that asks it for
// something else is refused, here if it names the runtime, else by `run` (plan_use.cc); whoever
// else reads a plan for the executor is told what is left out.
void read_runtime(const GivenKeys& keys, Plan& plan) {
  read_profile(keys, plan);
  refuse_predictions(keys, plan);
  refuse_layers(keys, plan);
  refuse_stage(keys, plan);
  RuntimeTraits& traits = plan.runtime;
  const RuntimeTraits of_profile = traits;
  for (const TraitRow& row : kTraitRows) {
    const JsonValue* value = row.of_plan ? keys.json.given(row.key.name) : nullptr;
    if (value == nullptr) continue;
    take_trait(*value, row, traits);
    if (!traits.performer().fixed_traits || traits == of_profile) continue;
    if (keys.names_runtime()) {
      return keys.fail(row.key.name, "runtime " + traits.name + " has " +
                                         trait_json(row, of_profile) + " alone, not " +
                                         trait_json(row, traits));
    }
    keys.warnings.push_back(std::string(row.key.name) + " " + trait_json(row, traits) +
                            " is left out: runtime " + traits.name + " has " +
                            trait_json(row, of_profile) + " alone");
    traits = of_profile;
  }
  if (!traits.deterministic) return;
  if (keys.json.given("cross_entropy") == nullptr && traits.cross_entropy == CrossEntropy::Fused &&
      !traits.performer().fixed_traits) {
    traits.cross_entropy = CrossEntropy::Eager;
  }
  traits.attention_kernel = std::min(traits.attention_kernel, AttentionKernel::Flash2);
}

}  // namespace rehearse
