// SPDX-License-Identifier: Apache-2.0
// What a job's profiles are told as: to people, and as JSON (rehearse.doctor/1).
#include <fmt/format.h>

#include <algorithm>

#include "schedules/base/json_document.h"
#include "viz/profile/waits.h"

namespace rehearse::viz {
namespace {

std::string milliseconds(std::int64_t ns) {
  return fmt::format("{:.2f} ms", static_cast<double>(ns) * 1e-6);
}

// "rank 2 (310.20 ms)": whom most of the waiting is for.
std::string whom(const JobTimes& job, const StepTimes& step) {
  const auto most = std::ranges::max_element(step.waits_for);
  if (most == step.waits_for.end() || *most == 0) return "-";
  const auto rank = job.ranks[static_cast<std::size_t>(most - step.waits_for.begin())];
  return fmt::format("rank {} ({})", rank, milliseconds(*most));
}

std::string step_line(std::string_view name, const JobTimes& job, const StepTimes& step) {
  return fmt::format("  {:<9}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}   {}\n", name,
                     milliseconds(step.length()), milliseconds(step.computing),
                     milliseconds(step.communicating), milliseconds(step.waiting),
                     milliseconds(step.data), milliseconds(step.host), whom(job, step));
}

Json step_json(const JobTimes& job, const StepTimes& step) {
  Json waits = Json::array();
  for (std::size_t r = 0; r < step.waits_for.size(); ++r) {
    if (step.waits_for[r] == 0) continue;
    waits.push_back({{"rank", job.ranks[r]}, {"ns", step.waits_for[r]}});
  }
  return {{"step", step.step},
          {"rank", step.rank},
          {"length_ns", step.length()},
          {"computing_ns", step.computing},
          {"communicating_ns", step.communicating},
          {"waiting_ns", step.waiting},
          {"data_ns", step.data},
          {"host_ns", step.host},
          {"waits_for", std::move(waits)}};
}

Json profile_json(const RankProfile& profile, const Families& families) {
  Json rows = Json::array();
  for (std::size_t f = 0; f < profile.families.size(); ++f) {
    const EventTotal& total = profile.families[f];
    if (total.events == 0) continue;
    rows.push_back({{"family", families[static_cast<int>(f)].name},
                    {"events", total.events},
                    {"time_ns", total.time}});
  }
  return {{"rank", profile.rank},
          {"file", profile.path},
          {"device_events", profile.devices},
          {"kernels", profile.kernels.events},
          {"kernels_ns", profile.kernels.time},
          {"operators", profile.operators.events},
          {"operators_ns", profile.operators.time},
          {"families", std::move(rows)}};
}

}  // namespace

std::string job_text(const JobTimes& job, const PredictedJob* predicted) {
  std::string text = job.sentence + "\n";
  if (predicted != nullptr) {
    text += fmt::format("{} predicts a step of {:.2f} ms, between {:.2f} and {:.2f} ms.\n",
                        predicted->scenario, predicted->step_s * 1e3, predicted->low_s * 1e3,
                        predicted->high_s * 1e3);
  }
  const std::size_t ranks = job.ranks.size();
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const StepTimes& one = job.steps[i];
    if (i % ranks == 0) {
      text += fmt::format("\nstep {:<6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}   waits most for\n",
                          one.step, "lasts", "computes", "transfers", "waits", "data", "host");
    }
    text += step_line(fmt::format("rank {}", one.rank), job, one);
    if (predicted == nullptr) continue;
    text +=
        step_line("predicted", predicted->times, predicted->times.steps[predicted->row[i % ranks]]);
  }
  return text;
}

std::string job_json(const JobTimes& job, const std::vector<RankProfile>& profiles,
                     const Families& families, const PredictedJob* predicted) {
  Json json{{"schema", "rehearse.doctor/1"}, {"sentence", job.sentence}};
  if (job.straggler >= 0) {
    json["straggler"] = {{"rank", job.ranks[static_cast<std::size_t>(job.straggler)]},
                         {"share", job.share},
                         {"slower", job.slower}};
  } else {
    json["straggler"] = nullptr;
  }
  json["steps"] = Json::array();
  for (const StepTimes& one : job.steps) json["steps"].push_back(step_json(job, one));
  if (predicted != nullptr) {
    Json rows = Json::array();
    for (std::size_t r = 0; r < job.ranks.size(); ++r) {
      Json row = step_json(predicted->times, predicted->times.steps[predicted->row[r]]);
      row["rank"] = job.ranks[r];
      rows.push_back(std::move(row));
    }
    json["predicted"] = {{"scenario", predicted->scenario},
                         {"step_time_s", predicted->step_s},
                         {"low_s", predicted->low_s},
                         {"high_s", predicted->high_s},
                         {"ranks", std::move(rows)}};
  } else {
    json["predicted"] = nullptr;
  }
  json["profiles"] = Json::array();
  for (const RankProfile& profile : profiles) {
    json["profiles"].push_back(profile_json(profile, families));
  }
  return json.dump(2) + "\n";
}

}  // namespace rehearse::viz
