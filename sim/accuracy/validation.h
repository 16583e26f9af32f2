// SPDX-License-Identifier: Apache-2.0
// Measured cases: read, predicted, scored. What `rehearse validate` does, without its command line.
//
// The format of a case is described in docs/accuracy.md. Errors are predicted / measured - 1;
// of ratios and fractions the difference. A case that this version cannot predict, that is
// malformed or contradicts itself is a row with the reason; only a file that cannot be read as a
// whole is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/scenario.h"
#include "schedules/timing/durations.h"
#include "sim/accuracy/moe_layer.h"
#include "sim/band/error_table.h"
#include "sim/band/step_features.h"
#include "sim/memory/bad_day.h"

namespace rehearse::sim {

enum class CaseKind : std::uint8_t {
  Step,      // a scenario whose step was measured
  Formula,   // a scenario and values of a paper's formula
  Schedule,  // an order with given durations
  States,    // model states of one rank
  Layer,     // one transformer layer of a scenario, one micro-batch
  Stage,     // one position of a scenario's pipeline, one micro-batch, without transfers
  MoeLayer,  // one layer of experts
};

// One key of `measured`, in its units; empty: null in the file, or not predicted.
struct Figure {
  std::string key;
  std::optional<double> measured, predicted;
  std::optional<double> tolerance;  // absolute; empty: the source gives none
};
struct RankFigures {
  std::int32_t rank = 0;
  std::vector<Figure> figures;
};

struct StatesCase {
  std::int64_t parameters = 0;
  std::int32_t data_parallel = 1, zero_stage = 0;
  Precision precision;
};
struct ScheduleCase {
  std::string name;
  ScheduleShape shape;  // as given, not resolved
  Durations times;
};

struct ValidationCase {
  std::string id;
  CaseKind kind = CaseKind::Step;
  std::string group;                 // of plans that compete; empty: no scenario
  std::string source;                // Step: the file's name, as errors have it
  std::optional<Scenario> scenario;  // Step, Formula, Layer, Stage
  std::int32_t position = 0;         // Stage: of the pipeline
  ScheduleCase schedule;
  StatesCase states;
  std::optional<MoeLayerCase> moe_layer;
  std::string measure;          // which ratio the source calls bubble_ratio; empty: ours
  std::vector<Figure> figures;  // of `measured` but fits and ranks, in file order
  std::vector<RankFigures> ranks;
  std::optional<bool> measured_fits;
  std::optional<Verdict> verdict;  // predicted; a formula's is yes or no
  std::optional<bool> predicted_fits() const {
    return verdict ? std::optional(*verdict != Verdict::No) : std::nullopt;
  }
  // Step: in what it is like other steps, and between which times it lies, nine times in ten, as
  // the other sources say.
  std::optional<StepFeatures> features;
  std::optional<double> low_s, high_s;
  std::string skipped;  // why it is not predicted; empty: it is
  std::int32_t line = 0;
};

struct ValidationFile {
  std::string path;
  std::vector<ValidationCase> cases;  // in file order
};

// Errors, and what `skipped` says of malformed cases: "FILE:LINE: KEY: what is wrong".
Result<ValidationFile> read_validation(const std::string& path, const ScenarioOptions& options);

// Fills in what is predicted, or `skipped`. The file's path is that of messages. Errors: tables
// that should be shipped are not there.
Result<> predict_case(ValidationCase& entry, const std::string& path);

struct ErrorStats {
  std::int32_t cases = 0;
  double mean_abs_error = 0, max_abs_error = 0, bias = 0;
  std::optional<double> spearman;  // of step times, from 3 cases on
};
// How well the plans of one group are told apart: what a user who believes the prediction loses.
struct GroupScore {
  std::string name;
  std::int32_t plans = 0;          // different ones
  std::optional<double> spearman;  // empty: all predicted, or all measured, alike
  double regret = 0;  // measured time of the plan predicted fastest over the fastest measured, - 1
  // Plans that lie within the band of their difference from the one predicted fastest, it among
  // them, as the other sources say; whether one of them is the fastest measured, and what the best
  // of them costs as `regret` does.
  std::int32_t near = 1;
  bool best_is_near = false;
  double near_regret = 0;
};
struct FitDecisions {
  std::int32_t right = 0;
  std::int32_t false_fits = 0;                  // predicted to fit, ran out of memory
  std::int32_t false_refusals = 0;              // predicted not to fit, ran
  std::int32_t tight_ran = 0, tight_broke = 0;  // predicted tight
  std::int32_t decided() const {
    return right + false_fits + false_refusals + tight_ran + tight_broke;
  }
  // `fits` that is not the measured one: it is true of what is tight.
  std::int32_t differ() const { return false_fits + false_refusals + tight_broke; }
  // Who says `tight` is half wrong whatever comes.
  double wrong() const { return false_fits + false_refusals + 0.5 * (tight_ran + tight_broke); }
};
// How many of a file's step times lie between low_s and high_s.
struct BandScore {
  std::int32_t cases = 0, inside = 0;
  double half_width = 0;  // median, relative
  double coverage() const { return cases > 0 ? static_cast<double>(inside) / cases : 0; }
};
struct FileScore {
  std::int32_t cases = 0, skipped = 0, missed_tolerances = 0;
  FitDecisions fit;
  std::vector<GroupScore> groups;  // of at least three different plans, sorted by name
  std::optional<ErrorStats> step_time, memory;
  std::optional<BandScore> band;
  std::vector<std::pair<std::string, ErrorStats>> other;  // by measured key, sorted
};
// Scores the cases of one file, or of all files together.
FileScore score(const std::vector<const ValidationCase*>& cases, const ErrorTable& errors = {});
// Equal plans of a group are averaged first. Cases without a step time do not count. `errors`: of
// predictions, for the band of differences.
std::vector<GroupScore> score_groups(const std::vector<const ValidationCase*>& cases,
                                     const ErrorTable& errors);
// Error of a figure as scored; empty where one side is missing.
std::optional<double> error_of(const Figure& figure);
// The figure that the memory block takes of a case: peak_allocated, else peak_reserved, else
// peak_device; of several ranks the largest on either side.
std::optional<Figure> memory_figure(const ValidationCase& entry);

// Spearman's rank correlation, ties sharing their mean rank; empty below 3 pairs or without spread.
std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs);

// `errors`: as score_groups() has them.
std::string validation_json(const std::vector<ValidationFile>& files,
                            const ErrorTable& errors = {});
std::string validation_text(const std::vector<ValidationFile>& files,
                            const ErrorTable& errors = {});

}  // namespace rehearse::sim
