// SPDX-License-Identifier: Apache-2.0
// Where the steps of a job went, rank by rank, and who is waited for.
//
// A rank that communicates waits until the last of those that it meets has come to its part. It
// waits for whoever that is, and where that one waits itself at the moment, for the one that it
// waits for: at the end of the chain stands somebody who computes, loads data or runs on its host.
// After that it communicates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "viz/profile/families.h"
#include "viz/profile/rank_profile.h"

namespace rehearse::viz {

// Of one rank in one step [ns]; all parts add up to the step.
struct StepTimes {
  std::int32_t rank = -1;
  std::int64_t step = 0, begin = 0, end = 0;
  std::int64_t computing = 0, communicating = 0, waiting = 0, data = 0, host = 0;
  std::vector<std::int64_t> waits_for;  // by rank's index: of `waiting`

  std::int64_t length() const { return end - begin; }
  std::int64_t own() const { return computing + data + host; }  // nobody else has a part in it
};

struct JobTimes {
  std::vector<std::int32_t> ranks;  // numbers, ascending
  std::vector<StepTimes> steps;     // step by step, in each rank by rank
  std::int32_t straggler = -1;      // index into ranks; -1: nobody stands out
  double slower = 0;                // its own time over the others' median, less 1
  double share = 0;                 // of the others' time: they wait for it
  std::string sentence;
};

// REQUIRES: at least one profile. Errors: two are of one rank, or of a rank that is not known; they
// have no step in common, or are of different runs, a day or more apart.
Result<JobTimes> job_times(std::vector<RankProfile>& profiles);

// What a scenario predicts of one step, rank by rank; waits_for is by index of `ranks`, too.
struct PredictedJob {
  std::string scenario;
  double step_s = 0, low_s = 0, high_s = 0;
  JobTimes times;                // of rows: those that share a row are one rank
  std::vector<std::size_t> row;  // by rank of the job: index into times.steps
};

std::string job_text(const JobTimes& job, const PredictedJob* predicted);
// rehearse.doctor/1, with the totals of each profile's families beside the steps.
std::string job_json(const JobTimes& job, const std::vector<RankProfile>& profiles,
                     const Families& families, const PredictedJob* predicted);

}  // namespace rehearse::viz
