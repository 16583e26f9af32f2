// SPDX-License-Identifier: Apache-2.0
// The scenario of a run: as the device performs it, with nothing left open.
#include "cli/open.h"
#include "cli/run.h"
#include "schedules/passes/plan_order.h"

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
  const Precision runs = device.precision(plan.precision, plan.zero_stage);
  if (plan.runtime.own_executor && plan.precision == runs) return first;
  std::string said;
  if (!(plan.precision == runs)) {
    said = "plan.precision: " + plan.precision.name + " is run as " + runs.name + " (" +
           std::to_string(runs.parameters) + "+" + std::to_string(runs.gradients) + "+" +
           std::to_string(runs.optimizer) + " bytes per parameter)";
    how.overrides.push_back("plan.precision=" + runs.name);
  }
  how.overrides.push_back("plan.runtime=" + std::string(kExecutorRuntime));
  Result<Scenario> again = read_scenario(options.scenario, how);
  if (!again) return again;
  Scenario scenario = std::move(again).value();
  scenario.name = first.name;
  if (!said.empty()) scenario.warnings.push_back(said);
  scenario.run_notes = first.run_notes;  // of what the files say, not of what is run
  return scenario;
}

// The order of a planned schedule is chosen once for a file: as `simulate` of it chooses, on the
// cluster that the file names. So it depends neither on the machine that runs it nor on a --cluster
// that describes this machine, and a prediction of the run has the run's order.
Result<> choose_order(const RunFlags& options, Scenario& scenario) {
  Plan& plan = scenario.plan;
  if (!leaves_order_open(plan)) return {};
  ScenarioOptions how = options.options();
  how.cluster.reset();
  how.overrides.push_back("plan.micro_batch=" + std::to_string(plan.micro_batch));
  Result<Scenario> as_simulated = read_scenario(options.scenario, how);
  if (!as_simulated && !options.cluster.empty()) {  // a file that names no cluster
    how.cluster = options.cluster;
    as_simulated = read_scenario(options.scenario, how);
  }
  if (!as_simulated) return as_simulated.error();
  const Result<sim::Cluster> cluster = sim::read_cluster(as_simulated.value().cluster);
  if (!cluster) return cluster.error();
  const Result<sim::Prediction> made =
      predict(options.scenario, as_simulated.value(), cluster.value());
  if (!made) return made.error();
  const Plan& chosen = made.value().plan;
  plan.order = chosen.order;
  plan.virtual_stages = chosen.virtual_stages;
  plan.stage_layers = chosen.stage_layers;
  plan.sequence_slices = chosen.sequence_slices;
  plan.memory_limit = chosen.memory_limit;
  plan.planned_stages = chosen.planned_stages;
  plan.planned_transfer = chosen.planned_transfer;
  plan.chunks_open = plan.slices_open = false;
  return {};
}

}  // namespace

Result<Scenario> scenario_of_run(const RunFlags& options, const exec::RunDevice& device) {
  Result<Scenario> read = as_run(options, device);
  if (!read) return read;
  Scenario scenario = std::move(read).value();
  if (!scenario.unperformed.empty()) return Error{not_performed(scenario.unperformed).message};
  if (scenario.plan.offload != OffloadMode::None && !device.cuda()) {
    scenario.warnings.emplace_back(
        "plan.offload: host and device are one memory on the CPU: copies run, nothing is saved");
  }
  if (options.steps > 0) scenario.train.steps = options.steps;
  if (!options.data.empty()) scenario.train.data = options.data;
  return scenario;
}

Result<> choose_open(const RunFlags& options, Scenario& scenario) {
  if (scenario.plan.micro_batch_auto && (!options.dry_run || leaves_order_open(scenario.plan))) {
    const Result<sim::Cluster> cluster = sim::read_cluster(scenario.cluster);
    if (!cluster) return Error{options.scenario + ": " + cluster.error().message};
    // the one that it would choose
    const Result<sim::Prediction> predicted = predict(options.scenario, scenario, cluster.value());
    if (!predicted) return Error{predicted.error().message};
    Plan chosen = predicted.value().plan;
    if (leaves_order_open(scenario.plan)) {
      chosen = scenario.plan;
      chosen.micro_batch = predicted.value().plan.micro_batch;
      chosen.micro_batch_auto = false;
    }
    scenario.plan = std::move(chosen);
  }
  return choose_order(options, scenario);
}

}  // namespace rehearse::cli
