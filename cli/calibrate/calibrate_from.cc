// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate/calibrate_from.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/commands.h"
#include "cli/open.h"
#include "exec/run/device.h"
#include "schedules/base/counted.h"
#include "schedules/base/files.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "sim/predict/corrected/fit_correction.h"
#include "viz/import/import.h"

namespace rehearse::cli {
namespace {

std::optional<double> seconds_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

constexpr std::int64_t kMostBytes = 1 << 26;  // of a cluster file

// What was measured, and of which schedule.
struct Measured {
  sim::MeasuredStep step;
  std::string schedule_hash;  // empty: nobody knows
  bool own = false;           // our executor's trace
  std::int32_t steps = 1;     // that it was taken for
};

StepWork per_step(StepWork work, std::int32_t steps) {
  for (const auto part : {&StepWork::products, &StepWork::attention, &StepWork::memory_bound,
                          &StepWork::computing, &StepWork::collectives, &StepWork::transfers}) {
    work.*part /= steps;
  }
  return work;
}

Result<Measured> measured_of(const CalibrateFrom& options) {
  if (const std::optional<double> seconds = seconds_of(options.from)) {
    if (!std::isfinite(*seconds) || *seconds <= 0) {
      return Error{"calibrate: --from: a step of " + options.from + " s cannot be"};
    }
    return Measured{.step = {.step_s = *seconds, .work = {}}};
  }
  const Result<Trace> trace = viz::load_trace(options.from);
  if (!trace) return trace.error();
  const Trace& t = trace.value();
  if (!t.schedule_hash.empty() && t.label == TraceLabel::Predicted) {
    return Error{options.from + ": is a prediction; --from takes a measured step"};
  }
  if (t.step().value <= 0) return Error{options.from + ": holds no step"};
  const bool own = !t.schedule_hash.empty();
  const std::int32_t steps = own                 ? 1
                             : options.steps > 0 ? options.steps
                                                 : std::max(t.profiled_steps, 1);
  return Measured{.step = {.step_s = static_cast<double>(t.step().value) * 1e-9 / steps,
                           .work = per_step(step_work(t), steps)},
                  .schedule_hash = t.schedule_hash,
                  .own = own,
                  .steps = steps};
}

ScenarioOptions scenario_options(const CalibrateFrom& options, bool own) {
  ScenarioOptions how{.overrides = options.set};
  if (!options.cluster.empty()) how.cluster = options.cluster;
  if (own) how.overrides.push_back("plan.runtime=" + std::string(kExecutorRuntime));
  return how;
}

// The cluster's own file with the correction; what it names beside itself is named from the root.
Result<std::string> cluster_text(const Opened& opened, const sim::Correction& correction,
                                 const std::string& source) {
  const ClusterSource& from = opened.scenario.cluster;
  Result<std::string> text = from.inline_json.empty() ? read_text_file(from.path, kMostBytes)
                                                      : Result<std::string>(from.inline_json);
  if (!text) return text.error();
  Json json = Json::parse(text.value());
  for (const auto& [key, folder] :
       {std::pair{"fabric", "clusters/fabrics"}, std::pair{"calibration", "clusters"}}) {
    if (!json.contains(key) || !json[key].is_string()) continue;
    const auto found = find_file(json[key].text(), from.path, folder);
    if (found) json[key] = std::filesystem::absolute(*found).string();
  }
  Json factors;
  for (const sim::CorrectionRow& row : sim::kCorrections) {
    factors[std::string(row.name)] = correction.*row.field;
  }
  factors["source"] = source;
  json["correction"] = std::move(factors);
  return json.dump(2) + "\n";
}

std::string step_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

// The same plan with twice the micro-batches was not measured: what the correction makes of it.
std::string unused_plan(const CalibrateFrom& options, const Opened& opened,
                        const sim::Cluster& corrected) {
  Scenario other = opened.scenario;
  other.plan.global_batch *= 2;
  const Result<sim::Prediction> before = predict(options.scenario, other, opened.cluster);
  const Result<sim::Prediction> after = predict(options.scenario, other, corrected);
  if (!before || !after) return {};
  return fmt::format("a plan that was not measured, twice the global batch: {} before, {} after\n",
                     step_text(before.value().step_s), step_text(after.value().step_s));
}

// In which a CPU ran the scenario.
std::string run_precision(const Scenario& scenario) {
  const bool asked = std::ranges::count(scenario.given, key_of(&Plan::precision)) > 0;
  return exec::RunDevice::choose("cpu").value().precision(scenario.plan, asked).name;
}

}  // namespace

int calibrate_from(const CalibrateFrom& options) {
  const Result<Measured> read = measured_of(options);
  if (!read) return fail(read.error().message);
  const Measured& measured = read.value();
  ScenarioOptions how = scenario_options(options, measured.own);
  Result<Opened> opened = open(options.scenario, how);
  if (opened && measured.own && opened.value().cluster.workers > 0) {
    how.overrides.push_back("plan.precision=" + run_precision(opened.value().scenario));
    opened = open(options.scenario, how);
  }
  if (!opened) return fail(opened.error().message);
  const auto& [scenario, cluster] = opened.value();
  const Result<sim::CorrectionFit> fitted = sim::fit_correction(scenario, cluster, measured.step);
  if (!fitted) return fail(options.scenario + ": " + fitted.error().message);
  const sim::CorrectionFit& fit = fitted.value();
  if (!measured.schedule_hash.empty() && measured.schedule_hash != fit.schedule_hash) {
    return fail(options.from + ": is of another schedule than " + options.scenario +
                "'s; give the --set that the run had");
  }
  const std::string source = fmt::format("a step of {} of {}: {}", step_text(measured.step.step_s),
                                         scenario.name, options.from);
  const Result<std::string> text = cluster_text(opened.value(), fit.correction, source);
  if (!text) return fail(text.error().message);
  if (const int code = write_file(options.out, text.value()); code != kDone) return code;
  const Result<sim::Cluster> corrected = sim::read_cluster({.path = options.out});  // as users will
  if (!corrected) return fail(corrected.error().message);

  std::string said;
  if (measured.step.work && !measured.own) {
    said = fmt::format("the profile is taken as {} (--steps)\n", counted(measured.steps, "step"));
  }
  said += fmt::format("measured {}, predicted {} before ({:+.1f} %), {} after\n",
                      step_text(measured.step.step_s), step_text(fit.before_s),
                      100 * (fit.before_s / measured.step.step_s - 1), step_text(fit.after_s));
  said += "factors on predicted times:";
  for (const sim::CorrectionRow& row : sim::kCorrections) {
    said += fmt::format("{} {} {:.3g}", &row == sim::kCorrections.data() ? "" : ",", row.name,
                        fit.correction.*row.field);
  }
  said += "\n" + unused_plan(options, opened.value(), corrected.value());
  said += "cluster: " + options.out + "\nNow: rehearse simulate SCENARIO --cluster " + options.out +
          "\n";
  print_text(said);
  return kDone;
}

}  // namespace rehearse::cli
