// SPDX-License-Identifier: Apache-2.0
// rehearse simulate: one training step, predicted.
#include <chrono>

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/plan/sweep.h"
#include "sim/predict/order_prices.h"
#include "sim/predict/predicted_trace.h"
#include "sim/report/assumed_network_note.h"
#include "sim/report/overlap_note.h"
#include "sim/report/report.h"
#include "sim/report/zero_order.h"
#include "sim/search/nearest_fit.h"
#include "sim/search/what_holds.h"

namespace rehearse::cli {
namespace {

struct SimulateOptions : ScenarioFlags {
  std::string trace, sweep, svg;
  bool json = false, csv = false, require_fit = false;
};

// "; without the changes it is 2, ...": where the plan leaves the micro-batch open and what the
// command changes of the file changes the choice, a comparison of the two is of two things.
std::string other_choice(const SimulateOptions& options, const sim::Prediction& changed) {
  const bool changes = !options.set.empty() || !options.cluster.empty() || options.gpus > 0;
  if (!changes || changed.micro_batches.empty()) return {};
  const Result<Opened> opened = open(options.scenario, {});
  if (!opened || !opened.value().scenario.plan.micro_batch_auto) return {};
  const Result<sim::Prediction> plain =
      predict(options.scenario, opened.value().scenario, opened.value().cluster);
  if (!plain || plain.value().plan.micro_batch == changed.plan.micro_batch) return {};
  const std::int32_t before = plain.value().plan.micro_batch;
  return "; " + std::to_string(before) +
         " without what the command changes, so a comparison with that is of two things: --set "
         "plan.micro_batch=" +
         std::to_string(before) + " keeps it";
}

int simulate(const SimulateOptions& options) {
  if (!options.sweep.empty()) {
    if (!options.trace.empty() || options.require_fit) {
      return fail("simulate: --trace and --require-fit are of one plan, --sweep is of several");
    }
    return sweep({.scenario = options,
                  .key_values = options.sweep,
                  .csv = options.csv,
                  .json = options.json,
                  .svg = options.svg});
  }
  if (options.csv || !options.svg.empty()) {
    return fail("simulate: --csv and --svg go with --sweep");
  }
  const auto since = [](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
  };
  const auto begin = std::chrono::steady_clock::now();
  const Result<Opened> opened = open(options.scenario, options.options());
  if (!opened) return fail(opened.error().message);
  const auto& [scenario, cluster] = opened.value();
  for (const std::string& warning : scenario.warnings) print_error(warning);
  const Result<> enough = sim::check_gpus(cluster, scenario.gpus);
  if (!enough) return fail(enough.error().message);
  Result<sim::Prediction> made =
      predict(options.scenario, scenario, cluster,
              {.record_load = !options.trace.empty(), .leave_out = true});
  if (!made) return fail(made.error());
  sim::Prediction prediction = std::move(made).value();
  for (const std::string& warning : prediction.warnings) print_error(warning);
  Result<PriceOps> order_by = scenario.file_cluster ? sim::order_prices(scenario)
                              : prediction.models   ? sim::order_prices(prediction.models)
                                                    : PriceOps();
  prediction.memory.note =
      sim::zero_order_note(scenario.model, prediction, cluster,
                           order_by ? std::move(order_by).value() : sim::by_flops());
  if (!prediction.memory.fits) {
    const auto search_begin = std::chrono::steady_clock::now();
    // The scenario's own space, whatever order it names: nearest_fit says which ones are tried.
    ScenarioOptions any_order = options.options();
    any_order.overrides.emplace_back("plan.schedule=null");
    const Result<sim::Space> space = sim::read_space(options.scenario, any_order);
    if (space) {
      const Result<sim::NearestPlan> nearest =
          sim::nearest_fit(space.value(), cluster, prediction.plan);
      if (nearest) prediction.memory.instead = nearest.value();
    }
    prediction.instead_wall_s = since(search_begin);
  } else if (prediction.memory.verdict() == sim::Verdict::Tight) {
    const auto search_begin = std::chrono::steady_clock::now();
    prediction.memory.holds = sim::what_holds(
        prediction, cluster, [&](const std::vector<std::string>& more) -> Result<Scenario> {
          ScenarioOptions changed = options.options();
          changed.overrides.insert(changed.overrides.end(), more.begin(), more.end());
          Result<Opened> again = open(options.scenario, changed);
          if (!again) return again.error();
          return std::move(again.value().scenario);
        });
    prediction.instead_wall_s = since(search_begin);
  }
  prediction.overlap_note = sim::overlap_note(scenario, cluster, prediction);
  const std::string assumed = sim::assumed_network_note(scenario, cluster, prediction);
  if (!assumed.empty()) {
    prediction.network_note += (prediction.network_note.empty() ? "" : "; ") + assumed;
  }
  prediction.micro_batch_note = other_choice(options, prediction);
  prediction.wall_s = since(begin) - prediction.instead_wall_s;
  if (!options.trace.empty()) {
    const Result<> written =
        write_trace(sim::predicted_trace(prediction, scenario, cluster), options.trace);
    if (!written) return fail(written.error());
  }
  const std::string text = options.json ? sim::report_json(prediction, scenario, cluster)
                                        : sim::report_text(prediction, scenario, cluster);
  print_text(text);
  if (options.require_fit && !prediction.memory.fits) {
    return fail(options.scenario + ": the plan does not fit in memory", kNo);
  }
  return kDone;
}

}  // namespace

Command simulate_command() {
  const auto o = std::make_shared<SimulateOptions>();
  Command command{"simulate",
                  "predict one training step: time, memory of every rank, bubbles, communication"};
  command.options = {
      required({"SCENARIO", &o->scenario, "scenario file"}),
      {"--json", &o->json, "one JSON document on stdout"},
      writes({"--trace", &o->trace, "write the predicted timeline to FILE"}),
      one_each({"--set", &o->set, "override a key: --set plan.micro_batch=2"}),
      {"--cluster", &o->cluster, "cluster file instead of the scenario's"},
      {"--gpus", &o->gpus, "number of GPUs instead of the scenario's", Whole{1, 1 << 20}},
      {"--require-fit", &o->require_fit, "exit 1 if the plan does not fit"},
      {"--sweep", &o->sweep, "predict every value of a key: --sweep plan.micro_batch=1,2,4"},
      {"--csv", &o->csv, "of a sweep: as CSV"},
      writes({"--svg", &o->svg, "of a sweep: write step time against the key's values to FILE"}),
  };
  command.footer =
      "Example: rehearse simulate gpt3-175b-1024 --set plan.micro_batch=2 --trace step.trace";
  command.perform = [o](const Given&) { return simulate(*o); };
  return command;
}

}  // namespace rehearse::cli
