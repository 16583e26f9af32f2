// SPDX-License-Identifier: Apache-2.0
// rehearse doctor: why a job stands still, or what makes it slow, from what its ranks left behind.
#include "cli/trace/doctor.h"

#include <algorithm>

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/trace/doctor_files.h"
#include "schedules/ranks/unfold.h"
#include "sim/predict/predicted_trace.h"
#include "viz/hang/hang.h"
#include "viz/profile/read_profiles.h"
#include "viz/profile/waits.h"

namespace rehearse::cli {
namespace {

struct DoctorOptions {
  std::vector<std::string> traces;
  std::string scenario;
  bool json = false;
};

int hang(const DoctorOptions& options, DoctorFiles files) {
  if (!options.scenario.empty()) {
    return fail("doctor: --scenario puts a prediction beside a profile, and these are of a hang");
  }
  const Result<viz::Hang> found = files.ras.empty()
                                      ? viz::find_hang(std::move(files.dumps))
                                      : viz::find_hang_in_ras(files.ras, files.ras_path);
  if (!found) return fail("doctor: " + found.error().message);
  print_text(options.json ? viz::hang_json(found.value()) : viz::hang_text(found.value()));
  return kDone;
}

// The prediction of every rank that the job's profiles are of.
Result<viz::PredictedJob> predicted_job(const std::string& path, const viz::JobTimes& job) {
  const Result<Opened> opened = open(path, {});
  if (!opened) return opened.error();
  const auto& [scenario, cluster] = opened.value();
  const Result<> enough = sim::check_gpus(cluster, scenario.gpus);
  if (!enough) return enough.error();
  const Result<sim::Prediction> made = predict(path, scenario, cluster, {.leave_out = true});
  if (!made) return made.error();
  const sim::Prediction& prediction = made.value();
  const Trace trace = sim::predicted_trace(prediction, scenario, cluster);
  std::vector<viz::RankProfile> rows = viz::trace_profiles(trace, path);
  std::vector<std::int32_t> rank_of_row;
  for (const viz::RankProfile& row : rows) rank_of_row.push_back(row.rank);
  Result<viz::JobTimes> times = viz::job_times(rows);
  if (!times) return times.error();
  viz::PredictedJob out{.scenario = scenario.name,
                        .step_s = prediction.step_s,
                        .low_s = prediction.low_s(),
                        .high_s = prediction.high_s(),
                        .times = std::move(times).value()};
  const std::vector<RankClass> row_of_rank = rows_of_ranks(prediction.plan, prediction.schedule);
  for (const std::int32_t rank : job.ranks) {
    if (static_cast<std::size_t>(rank) >= row_of_rank.size()) {
      return Error{path + ": has " + std::to_string(row_of_rank.size()) +
                   " ranks, and a profile is of rank " + std::to_string(rank)};
    }
    const RankClass row = row_of_rank[static_cast<std::size_t>(rank)];
    const auto found = std::ranges::find(out.times.ranks, rank_of_row[row.index()]);
    out.row.push_back(static_cast<std::size_t>(found - out.times.ranks.begin()));
  }
  return out;
}

int slow_run(const DoctorOptions& options, DoctorFiles files) {
  const Result<viz::JobTimes> job = viz::job_times(files.profiles);
  if (!job) return fail(job.error());
  viz::PredictedJob predicted;
  if (!options.scenario.empty()) {
    Result<viz::PredictedJob> made = predicted_job(options.scenario, job.value());
    if (!made) return fail(made.error());
    predicted = std::move(made).value();
  }
  const viz::PredictedJob* const beside = options.scenario.empty() ? nullptr : &predicted;
  print_text(options.json ? viz::job_json(job.value(), files.profiles, files.families, beside)
                          : viz::job_text(job.value(), beside));
  return kDone;
}

int doctor(const DoctorOptions& options) {
  Result<DoctorFiles> files = read_doctor_files(options.traces);
  if (!files) return fail(files.error());
  if (!files.value().profiles.empty()) return slow_run(options, std::move(files).value());
  return hang(options, std::move(files).value());
}

}  // namespace

Command doctor_command() {
  const auto o = std::make_shared<DoctorOptions>();
  Command command{"doctor",
                  "what makes a run slow, rank by rank, or why it hangs: who waits for whom"};
  command.options = {
      required({"TRACE", &o->traces,
                "files of one kind, or their folder: profiles of PyTorch, of Nsight Systems "
                "(SQLite), Megatron-LM's OpenTelemetry spans, our traces; of a hang dumps of "
                "PyTorch's Flight Recorder as JSON, or text of NCCL's RAS"}),
      {"--scenario", &o->scenario, "of profiles: what this scenario predicts stands beside them"},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer = "Example: rehearse doctor tests/data/profiles/slow_rank";
  command.perform = [o](const Given&) { return doctor(*o); };
  return command;
}

}  // namespace rehearse::cli
