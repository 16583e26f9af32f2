// SPDX-License-Identifier: Apache-2.0
// The scenario of a run, as the device performs it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/open.h"
#include "cli/run/run.h"
#include "schedules/body/own/body_experts.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/expert_plan.h"
#include "schedules/scenario/keys/plan_rows.h"

namespace rehearse::cli {
namespace {

// With our runtime and in a precision that the device runs. A plan of another one is read again.
Result<Scenario> as_run(const RunFlags& options, const exec::RunDevice& device) {
  ScenarioOptions how = options.options();
  how.runtime = kExecutorRuntime;
  Result<Scenario> read = read_scenario(options.scenario, how);
  if (!read) return read;
  Scenario first = std::move(read).value();
  // The cluster that a run is predicted for describes this machine: no change of the plan.
  first.name = titled(first.name, {.overrides = options.set, .gpus = how.gpus});
  const Plan& plan = first.plan;
  const Precision runs =
      device.precision(plan, std::ranges::count(first.given, key_of(&Plan::precision)) > 0);
  // The host of a GPU reads no counts inside a step.
  const bool slots = device.cuda() && plan.expert_parallel > 1 && !plan.expert_slots &&
                     plan.expert_dispatch != ExpertDispatch::AllGather;
  if (plan.runtime.own_executor && plan.precision == runs && !slots) return first;
  std::string said;
  if (!(plan.precision == runs)) {
    said = "plan.precision: " + plan.precision.name + " is run as " + runs.name + " (" +
           std::to_string(runs.parameters) + "+" + std::to_string(runs.gradients) + "+" +
           std::to_string(runs.optimizer) + " bytes per parameter)";
    how.overrides.push_back("plan.precision=" + runs.name);
  }
  const bool asked = std::ranges::count(first.given, key_of(&Plan::expert_slots)) > 0;
  if (slots) how.overrides.emplace_back("plan.expert_slots=true");
  how.overrides.push_back("plan.runtime=" + std::string(kExecutorRuntime));
  Result<Scenario> again = read_scenario(options.scenario, how);
  if (!again) return again;
  Scenario scenario = std::move(again).value();
  scenario.name = first.name;
  if (!said.empty()) scenario.warnings.push_back(said);
  if (slots && asked) {
    scenario.warnings.emplace_back(
        "plan.expert_slots: false is run as true: a GPU's host reads no counts inside a step");
  }
  scenario.run_notes = first.run_notes;  // of what the files say, not of what is run
  return scenario;
}

// What a rank has room for where the plan leaves expert_capacity out; empty: it has experts of its
// own tokens alone, or says itself.
std::string room_of_experts(const Scenario& scenario) {
  const Plan& plan = scenario.plan;
  if (scenario.model.experts.count == 0 || row_limit(plan) > 0 || plan.expert_slots) return {};
  const Layout layout(scenario.model, plan);
  if (layout.shape.experts.block == 1) return {};
  const double room = reserved_capacity(layout), most = most_over_mean(layout);
  return fmt::format(
      "plan.expert_capacity is left out: experts have room for {:g} times their mean "
      "rows, {}",
      room,
      room == most ? std::string("all that can come")
                   : fmt::format("of at most {:g} that can come", most));
}

}  // namespace

Result<Scenario> scenario_of_run(const RunFlags& options, const exec::RunDevice& device) {
  Result<Scenario> read = as_run(options, device);
  if (!read) return read;
  Scenario scenario = std::move(read).value();
  if (!scenario.unperformed.empty()) return Error{not_performed(scenario.unperformed).message};
  const Plan& planned = scenario.plan;
  if (device.cuda() && planned.quantized_gather == 8) {
    return Error{"plan." + path_of(&Plan::quantized_gather) +
                 ": 8 is not performed on a GPU: there are no kernels for it (--device cpu)"};
  }
  if (planned.quantized_gather == 8 && planned.secondary_shard_group > 0 &&
      planned.precision.compute != ComputeType::Fp32) {
    return Error{"plan." + path_of(&Plan::quantized_gather) +
                 ": 8 out of a second copy (secondary_shard_group) is performed in fp32 alone"};
  }
  if (device.cuda() && planned.offload.parameters) {
    return Error{"plan." + path_of(&Plan::offload) +
                 ": parameters are not offloaded on a GPU yet (--device cpu)"};
  }
  if (device.cuda() && planned.offload_to == OffloadTarget::Nvme) {
    return Error{"plan." + path_of(&Plan::offload_to) +
                 ": nvme is not performed on a GPU yet (--device cpu)"};
  }
  if (device.cuda() && planned.overlap_pair == PairOverlap::Experts) {
    const ScheduleInfo* info = find_schedule(planned.schedule);
    if (info == nullptr || info->pairing == Pairing::Always) {
      return Error{"plan." + path_of(&Plan::overlap_pair) +
                   ": experts is not performed on a GPU: the halves of a pair have streams of "
                   "their own there, or one (full, none)"};
    }
  }
  const bool to_memory = planned.offload.activations || planned.offload_to == OffloadTarget::Host;
  if (planned.offload.any() && to_memory && !device.cuda()) {
    scenario.warnings.emplace_back(
        "plan.offload: host and device are one memory on the CPU: copies run, nothing is saved");
  }
  if (std::string room = room_of_experts(scenario); !room.empty()) {
    scenario.run_notes.push_back(std::move(room));
  }
  if (options.steps > 0) scenario.train.steps = options.steps;
  if (!options.data.empty()) scenario.train.data = options.data;
  return scenario;
}

}  // namespace rehearse::cli
