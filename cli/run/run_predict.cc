// SPDX-License-Identifier: Apache-2.0
// rehearse run --dry-run: the prediction for exactly this run.
#include <chrono>

#include "cli/commands.h"
#include "cli/run/run.h"
#include "cli/trace/step_trace.h"
#include "sim/predict/predicted_trace.h"
#include "sim/report/overlap_note.h"
#include "sim/report/report.h"
#include "sim/report/zero_order.h"

namespace rehearse::cli {

int predict_run(const RunFlags& options, const Scenario& as_run, const exec::RunDevice& device,
                std::int32_t processes, const PriceOps& order_by) {
  Scenario scenario = as_run;
  // What the run does otherwise has been said on stderr, and belongs into the report's notes.
  scenario.warnings.insert(scenario.warnings.end(), as_run.run_notes.begin(),
                           as_run.run_notes.end());
  const auto begin = std::chrono::steady_clock::now();
  Result<sim::Cluster> read = sim::read_cluster(scenario.cluster);
  if (!read) return fail(read.error().message);
  const sim::Cluster cluster = cli::as_run(std::move(read).value(), processes, options);
  Result<sim::Prediction> made = predict(options.scenario, scenario, cluster);
  if (!made) return fail(made.error().message);
  sim::Prediction prediction = std::move(made).value();
  for (const std::string& warning : prediction.warnings) print_error(warning);
  prediction.memory.note = sim::zero_order_note(scenario.model, prediction, cluster, order_by);
  prediction.overlap_note = sim::overlap_note(scenario, cluster, prediction);
  if (!device.cuda()) {
    prediction.resident =
        exec::plan_memory(options.run(), scenario, prediction.plan, prediction.schedule, processes,
                          processes, processes > 1);
  }
  if (!options.trace.empty()) {
    Trace trace = sim::predicted_trace(prediction, scenario, cluster);
    if (!prediction.row_class.empty()) {
      trace = of_every_rank(std::move(trace), prediction.schedule, prediction.plan);
    }
    if (prediction.resident)
      trace.resident_bytes = std::vector<std::int64_t>{prediction.resident->total(), 0};
    const Result<> written = write_trace(trace, options.trace);
    if (!written) return fail(written.error());
  }
  prediction.wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string text = options.json ? sim::report_json(prediction, scenario, cluster)
                                        : sim::report_text(prediction, scenario, cluster);
  print_text(text);
  return kDone;
}

}  // namespace rehearse::cli
