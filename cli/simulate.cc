// SPDX-License-Identifier: Apache-2.0
// rehearse simulate: one training step, predicted.
#include <chrono>

#include "cli/commands.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/overlap_note.h"
#include "sim/predict/predicted_trace.h"
#include "sim/predict/report.h"
#include "sim/predict/zero_order.h"

namespace rehearse::cli {
namespace {

struct Options {
  std::string scenario, trace, cluster;
  std::vector<std::string> set;
  std::int32_t gpus = 0;
  bool json = false, require_fit = false;
};

int simulate(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  ScenarioOptions read{.overrides = options.set};
  if (!options.cluster.empty()) read.cluster = options.cluster;
  if (options.gpus > 0) read.gpus = options.gpus;
  const Result<Scenario> scenario = read_scenario(options.scenario, read);
  if (!scenario) {
    print_error(scenario.error().message);
    return kBadInput;
  }
  const Result<sim::Cluster> cluster = sim::read_cluster(scenario.value().cluster);
  if (!cluster) {
    print_error(cluster.error().message);
    return kBadInput;
  }
  for (const std::string& warning : scenario.value().warnings) print_error(warning);
  if (scenario.value().plan.precision.compute == ComputeType::Fp8 &&
      !cluster.value().gpu.peaks.fp8) {
    print_error("plan.precision: " + cluster.value().gpu.name +
                " has no products in 8 bit (gpu.peak_dense_tflops.fp8): predicted with those in "
                "bf16, and the casts");
  }
  const Result<> enough = sim::check_gpus(cluster.value(), scenario.value().gpus);
  if (!enough) {
    print_error(enough.error().message);
    return kBadInput;
  }
  Result<sim::Prediction> made =
      sim::predict(scenario.value(), cluster.value(), {.record_load = !options.trace.empty()});
  if (!made) {
    print_error(options.scenario + ": " + made.error().message);
    return made.error().infeasible ? kNo : kBadInput;
  }
  sim::Prediction prediction = std::move(made).value();
  prediction.memory.note =
      sim::zero_order_note(scenario.value().model, prediction.plan, prediction.schedule);
  prediction.overlap_note = sim::overlap_note(scenario.value(), cluster.value(), prediction);
  prediction.wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!options.trace.empty()) {
    const Result<> written = write_trace(
        sim::predicted_trace(prediction, scenario.value(), cluster.value()), options.trace);
    if (!written) {
      print_error(written.error().message);
      return kBadInput;
    }
  }
  const std::string text = options.json
                               ? sim::report_json(prediction, scenario.value(), cluster.value())
                               : sim::report_text(prediction, scenario.value(), cluster.value());
  print_text(text);
  if (options.require_fit && !prediction.memory.fits) {
    print_error(options.scenario + ": the plan does not fit in memory");
    return kNo;
  }
  return kDone;
}

}  // namespace

Command simulate_command() {
  const auto o = std::make_shared<Options>();
  Command command{"simulate",
                  "predict one training step: time, memory of every rank, bubbles, communication"};
  command.options = {
      required({"SCENARIO", &o->scenario, "scenario file"}),
      {"--json", &o->json, "one JSON document on stdout"},
      {"--trace", &o->trace, "write the predicted timeline to FILE"},
      one_each({"--set", &o->set, "override a key: --set plan.micro_batch=2"}),
      {"--cluster", &o->cluster, "cluster file instead of the scenario's"},
      {"--gpus", &o->gpus, "number of GPUs instead of the scenario's", Whole{1, 1 << 20}},
      {"--require-fit", &o->require_fit, "exit 1 if the plan does not fit"},
  };
  command.footer =
      "Example: rehearse simulate gpt3-175b-1024 --set plan.micro_batch=2 --trace step.trace";
  command.perform = [o](const Given&) { return simulate(*o); };
  return command;
}

}  // namespace rehearse::cli
