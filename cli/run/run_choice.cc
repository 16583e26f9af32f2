// SPDX-License-Identifier: Apache-2.0
// What a plan leaves open is chosen before a run: its micro-batch for the machine that runs, its
// order for the cluster that the file names.
#include <fmt/format.h>

#include <algorithm>

#include "cli/run/run.h"
#include "exec/cpu/machine.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "sim/report/plan_remarks.h"

namespace rehearse::cli {
namespace {

// Whether `calibrate` wrote the cluster on this machine. Error: how the two differ.
Result<> measured_here(const sim::Cluster& cluster, const exec::RunDevice& device) {
  if (!cluster.calibration) return Error{cluster.id + " is described, not measured"};
  if (device.cuda()) {
    const Result<std::string> gpu = device.gpu_name();
    if (!gpu) return gpu.error();
    if (cluster.workers > 0 || cluster.gpu.name != gpu.value()) {
      return Error{cluster.id + " is of " + cluster.gpu.name + ", this machine's is " +
                   gpu.value()};
    }
    return {};
  }
  if (cluster.workers == 0) return Error{cluster.id + " is of GPUs, this is a CPU"};
  const std::string cpu = exec::cpu_name();
  const std::int32_t cores = exec::usable_cores();
  if (cluster.host.cpu == cpu && cluster.workers == cores) return {};
  return Error{fmt::format("{} is of {} cores of {}, here are {} of {}", cluster.id,
                           cluster.workers, cluster.host.cpu, cores, cpu)};
}

// "auto" is for this machine. What is left out is chosen as `simulate` of the file chooses.
Result<> choose_micro_batch(const RunFlags& options, const exec::RunDevice& device,
                            std::int32_t processes, Scenario& scenario) {
  if (!scenario.plan.micro_batch_auto) return {};
  const Result<sim::Cluster> read = sim::read_cluster(scenario.cluster);
  if (!read) return Error{options.scenario + ": " + read.error().message};
  const sim::Cluster cluster = as_run(read.value(), processes, options);
  const Result<> here = measured_here(cluster, device);
  if (!here && std::ranges::count(scenario.given, key_of(&Plan::micro_batch)) > 0) {
    return Error{options.scenario + ": plan.micro_batch: \"auto\" is for the machine that runs: " +
                 here.error().message +
                 " (--cluster with the cluster file of `rehearse calibrate`, or a number)"};
  }
  const Result<sim::Prediction> predicted = predict(options.scenario, scenario, cluster);
  if (!predicted) return Error{predicted.error().message};
  scenario.warnings.push_back(sim::micro_batch_note(predicted.value(), cluster.id));
  if (leaves_order_open(scenario.plan)) {
    scenario.plan.micro_batch = predicted.value().plan.micro_batch;
    scenario.plan.micro_batch_auto = false;
  } else {
    scenario.plan = predicted.value().plan;
  }
  return {};
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
  if (!as_simulated && plan.expert_slots) {  // a runtime that sends by counts
    how.overrides.emplace_back("plan.expert_slots=false");
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
  plan.places_recompute = chosen.places_recompute;
  plan.chunks_open = plan.slices_open = false;
  return {};
}

}  // namespace

sim::Cluster as_run(sim::Cluster cluster, std::int32_t processes, const RunFlags& flags) {
  if (cluster.workers > 0 && processes > 1) {
    cluster.processes = processes;
    cluster.throttle = flags.links();
    cluster.between_processes =
        exec::shared_memory_allowed() ? sim::ProcessLink::Memory : sim::ProcessLink::Tcp;
  }
  return cluster;
}

Result<> choose_open(const RunFlags& options, const exec::RunDevice& device, std::int32_t processes,
                     Scenario& scenario) {
  if (Result<> chosen = choose_micro_batch(options, device, processes, scenario); !chosen) {
    return chosen;
  }
  return choose_order(options, scenario);
}

}  // namespace rehearse::cli
