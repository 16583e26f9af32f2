// SPDX-License-Identifier: Apache-2.0
// Reading measured cases, scoring them, and saying what is wrong with a file.
#include "sim/accuracy/validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

namespace rehearse::sim {
namespace {

ValidationCase step_case(double predicted, double measured) {
  ValidationCase entry{.id = "x"};
  entry.figures.push_back(
      {.key = "step_time_s", .measured = measured, .predicted = predicted, .tolerance = {}});
  return entry;
}

FileScore score_of(const std::vector<ValidationCase>& cases) {
  std::vector<const ValidationCase*> pointers;
  for (const ValidationCase& entry : cases) pointers.push_back(&entry);
  return score(pointers);
}

// Errors +10 %, -20 %, +40 %: mean |error| 23.3 %, bias +10 %, max 40 %.
TEST(Score, ErrorsArePredictedOverMeasuredMinusOne) {
  const FileScore result = score_of({step_case(1.1, 1), step_case(0.8, 1), step_case(2.8, 2)});
  ASSERT_TRUE(result.step_time.has_value());
  EXPECT_NEAR(result.step_time->mean_abs_error, 0.7 / 3, 1e-12);
  EXPECT_NEAR(result.step_time->bias, 0.1, 1e-12);
  EXPECT_NEAR(result.step_time->max_abs_error, 0.4, 1e-12);
  EXPECT_FALSE(result.memory.has_value());
}

TEST(Score, RatiosAreComparedByTheirDifference) {
  Figure bubble{.key = "bubble_ratio", .measured = 0.01, .predicted = 0.02};
  EXPECT_NEAR(*error_of(bubble), 0.01, 1e-12);
  Figure step{.key = "step_time_s", .measured = 0.01, .predicted = 0.02};
  EXPECT_NEAR(*error_of(step), 1.0, 1e-12);
}

TEST(Score, WhatIsMissingOnOneSideIsNotScored) {
  EXPECT_FALSE(error_of({.key = "step_time_s", .measured = 1.0}).has_value());
  EXPECT_FALSE(error_of({.key = "step_time_s", .predicted = 1.0}).has_value());
  ValidationCase skipped = step_case(1, 1);
  skipped.skipped = "not in this version";
  const FileScore result = score_of({skipped, step_case(1.5, 1)});
  EXPECT_EQ(result.cases, 2);
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(result.step_time->cases, 1);
}

// Allocated before reserved before device; what the memory block does not take is under `other`.
TEST(Score, MemoryTakesAllocatedBytesFirst) {
  ValidationCase entry{.id = "x"};
  entry.figures.push_back({.key = "peak_device_bytes", .measured = 10.0, .predicted = 12.0});
  entry.figures.push_back({.key = "peak_allocated_bytes", .measured = 10.0, .predicted = 11.0});
  const FileScore result = score_of({entry});
  EXPECT_NEAR(result.memory->mean_abs_error, 0.1, 1e-12);
  ASSERT_EQ(result.other.size(), 1U);
  EXPECT_EQ(result.other[0].first, "peak_device_bytes");
}

TEST(Score, MemoryOfListedRanksIsThatOfTheLargest) {
  ValidationCase entry{.id = "x"};
  entry.ranks.push_back(
      {.rank = 0, .figures = {{.key = "peak_allocated_bytes", .measured = 8.0, .predicted = 9.0}}});
  entry.ranks.push_back(
      {.rank = 7,
       .figures = {{.key = "peak_allocated_bytes", .measured = 10.0, .predicted = 8.0}}});
  EXPECT_NEAR(*error_of(*memory_figure(entry)), 9.0 / 10 - 1, 1e-12);
}

TEST(Score, AFormulaIsNoMeasurementOfTimeOrFit) {
  ValidationCase entry = step_case(2, 1);
  entry.kind = CaseKind::Formula;
  entry.measured_fits = true;
  entry.verdict = Verdict::No;
  const FileScore result = score_of({entry});
  EXPECT_FALSE(result.step_time.has_value());
  EXPECT_EQ(result.fit.wrong(), 0);
  EXPECT_EQ(result.other.size(), 1U);
}

TEST(Score, WrongFitDecisionsAndMissedTolerancesAreCounted) {
  ValidationCase entry{.id = "x", .measured_fits = true, .verdict = Verdict::No};
  entry.figures.push_back(
      {.key = "bubble_ratio", .measured = 0.2431, .predicted = 0.2433, .tolerance = 0.0001});
  entry.figures.push_back(
      {.key = "bubble_ratio", .measured = 0.2431, .predicted = 0.2432, .tolerance = 0.0001});
  const FileScore result = score_of({entry});
  EXPECT_EQ(result.fit.wrong(), 1);
  EXPECT_EQ(result.missed_tolerances, 1);
}

// Three plans, one of them run twice: 10 s and 12 s count as 11. Predicted fastest is tp 2,
// measured 11 s where the best took 8: regret 3/8. Predicted order 2, 4, 1 and measured order 4, 2,
// 1 share one pair of three neighbours: 1 - 6 * 2 / (3 * 8) = 0.5.
TEST(Score, PlansOfAGroupCompeteEqualOnesAveraged) {
  const auto plan = [](int tensor_parallel, double predicted, double measured) {
    ValidationCase entry = step_case(predicted, measured);
    entry.group = "g";
    entry.scenario.emplace();
    entry.scenario->plan.tensor_parallel = tensor_parallel;
    return entry;
  };
  std::vector<ValidationCase> cases{plan(1, 20, 20), plan(2, 6, 10), plan(2, 6, 12)};
  EXPECT_TRUE(score_of(cases).groups.empty());  // two plans say little
  cases.push_back(plan(4, 7, 8));
  const std::vector<GroupScore> groups = score_of(cases).groups;
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].plans, 3);
  EXPECT_NEAR(groups[0].regret, 3.0 / 8, 1e-12);
  EXPECT_NEAR(*groups[0].spearman, 0.5, 1e-12);
}

// Who says tight is half wrong whether it ran or not, and of what is tight `fits` is true.
TEST(Score, FitDecisionsAreCountedByTheirKind) {
  const auto decision = [](bool measured, Verdict verdict) {
    return ValidationCase{.id = "x", .measured_fits = measured, .verdict = verdict};
  };
  const FitDecisions fit =
      score_of({decision(true, Verdict::Yes), decision(false, Verdict::Yes),
                decision(false, Verdict::Yes), decision(true, Verdict::No),
                decision(false, Verdict::No), decision(true, Verdict::Tight),
                decision(false, Verdict::Tight), decision(false, Verdict::Tight)})
          .fit;
  EXPECT_EQ(fit.right, 2);
  EXPECT_EQ(fit.false_fits, 2);
  EXPECT_EQ(fit.false_refusals, 1);
  EXPECT_EQ(fit.tight_ran, 1);
  EXPECT_EQ(fit.tight_broke, 2);
  EXPECT_EQ(fit.decided(), 8);
  EXPECT_EQ(fit.wrong(), 4.5);
  EXPECT_EQ(fit.differ(), 5);
}

// Of three plans two lie nearer than the band of their difference: the fastest measured is one of
// them. Without errors of pairs every difference tells.
TEST(Score, PlansNearerThanTheBandOfTheirDifferenceAreNotToldApart) {
  const auto plan = [](std::int32_t tensor_parallel, double predicted, double measured) {
    ValidationCase entry{.id = "x", .group = "g", .source = "here", .features = StepFeatures{}};
    entry.figures.push_back({"step_time_s", measured, predicted, {}});
    entry.scenario.emplace();
    entry.scenario->plan.tensor_parallel = tensor_parallel;
    return entry;
  };
  const std::vector<ValidationCase> cases{plan(1, 10, 11), plan(2, 10.3, 10), plan(4, 20, 20)};
  std::vector<const ValidationCase*> pointers;
  for (const ValidationCase& entry : cases) pointers.push_back(&entry);
  ErrorTable errors{.sources = {"there", "here"}, .rule = {.few = 0}};
  errors.rows.push_back({0, {}, 0.0, 1, 1});
  errors.rows.push_back({0, {}, 0.1, 1, 2});
  errors.rows.push_back({1, {}, 0.0, 1, 1});  // its own witness
  errors.rows.push_back({1, {}, 2.0, 1, 2});
  const GroupScore near = score(pointers, errors).groups.at(0);
  EXPECT_EQ(near.near, 2);
  EXPECT_TRUE(near.best_is_near);
  EXPECT_EQ(near.near_regret, 0);
  const GroupScore apart = score(pointers).groups.at(0);
  EXPECT_EQ(apart.near, 1);
  EXPECT_FALSE(apart.best_is_near);
  EXPECT_NEAR(apart.near_regret, 0.1, 1e-12);
}

TEST(RankCorrelation, IsOneForTheSameOrderAndMinusOneForTheReverse) {
  EXPECT_NEAR(*rank_correlation({{1, 10}, {2, 100}, {3, 101}}), 1, 1e-12);
  EXPECT_NEAR(*rank_correlation({{1, 3}, {2, 2}, {3, 1}}), -1, 1e-12);
  EXPECT_FALSE(rank_correlation({{1, 1}, {2, 2}}).has_value());
  EXPECT_FALSE(rank_correlation({{1, 1}, {1, 2}, {1, 3}}).has_value());
}

// Ties share their mean rank: ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3 give 4.5 / sqrt(4.5 * 5).
TEST(RankCorrelation, TiesShareTheirRank) {
  EXPECT_NEAR(*rank_correlation({{1, 1}, {2, 2}, {2, 3}, {4, 4}}), 4.5 / std::sqrt(4.5 * 5), 1e-12);
}

// One file per message: what is wrong, where, in which case.
// Why the file's only case is skipped; else why the file is not read.
struct Read {
  std::string error, id, skipped;
  std::vector<Figure> figures;
};
Read read_only_case(const std::string& text) {
  const std::string path = ::testing::TempDir() + "cases.json";
  std::ofstream(path) << text;
  Result<ValidationFile> read = read_validation(path, {});
  const auto short_path = [&](const std::string& message) {
    return message.starts_with(path) ? "cases.json" + message.substr(path.size()) : message;
  };
  if (!read) return {.error = short_path(read.error().message)};
  ValidationCase entry = std::move(read).value().cases.at(0);
  EXPECT_TRUE(predict_case(entry, path));
  std::remove(path.c_str());
  return {.error = "",
          .id = entry.id,
          .skipped = short_path(entry.skipped),
          .figures = std::move(entry.figures)};
}

TEST(ValidationReader, SaysWhatIsMalformedInACaseAndWhere) {
  const auto skipped = [](const std::string& text) {
    const Read read = read_only_case(text);
    EXPECT_EQ(read.error, "");
    return read.id + ": " + read.skipped;
  };
  EXPECT_EQ(skipped("{\"cases\": [\n{\"measured\": {}}]}"),
            "cases[0]: cases.json:2: cases[0].id: every case needs a text `id`");
  EXPECT_EQ(skipped("{\"cases\": [\n7]}"),
            "cases[0]: cases.json:2: cases[0].id: every case needs a text `id`");
  EXPECT_EQ(skipped("{\"cases\": [\n{\"id\": \"a\",\n\"measured\": {}}]}"),
            "a: cases.json:2: scenario: missing (or `layer`, `stage`, `moe_layer`, `schedule`, "
            "`states`)");
  EXPECT_EQ(skipped(R"({"cases": [{"id": "a",
"measured": {"bubble_ratio": "x"},
"schedule": {"name": "1f1b", "stages": 2, "microbatches": 4}}]})"),
            "a: cases.json:2: measured.bubble_ratio: must be a number");
  EXPECT_EQ(skipped(R"({"cases": [{"id": "a",
"measured": {"fits": 1},
"schedule": {"name": "1f1b", "stages": 2, "microbatches": 4}}]})"),
            "a: cases.json:2: measured.fits: must be true or false");
  EXPECT_EQ(skipped(R"({"cases": [{"id": "a", "measured": {},
"schedule": {"name": "1f1b", "stages": 0, "microbatches": 4}}]})"),
            "a: cases.json:2: schedule.stages: 0 is too small, must be at least 1");
  // Contradictions, which come out where the case is predicted.
  EXPECT_EQ(skipped(R"({"cases": [{"id": "a", "measured": {},
"schedule": {"name": "dualpipe", "stages": 3, "microbatches": 4}}]})"),
            "a: cases.json:1: schedule.stages: dualpipe needs an even number, not 3");
  EXPECT_EQ(skipped(R"({"cases": [{"id": "a", "measured": {},
"scenario": {"model": "gpt2-124m", "cluster": "no-such-cluster", "plan": {}}}]})")
                .substr(0, 24),
            "a: cases.json:2: cluster");
}

// Its neighbours are predicted, and what was measured stands in its row.
TEST(ValidationReader, AMalformedCaseIsASkippedRow) {
  const std::string path = ::testing::TempDir() + "cases.json";
  std::ofstream(path) << R"({"cases": [
{"id": "good", "measured": {"bubble_ratio": 0.25}, "schedule": {"name": "1f1b", "stages": 2, "microbatches": 3}},
{"id": "bad", "measured": {"bubble_ratio": 0.5}, "schedule": {"name": "1f1b", "stages": 2, "microbatchs": 3}},
{"id": "last", "measured": {"bubble_ratio": 0.25}, "schedule": {"name": "1f1b", "stages": 2, "microbatches": 3}}]})";
  Result<ValidationFile> read = read_validation(path, {});
  ASSERT_TRUE(read) << read.error().message;
  ValidationFile file = std::move(read).value();
  ASSERT_EQ(file.cases.size(), 3U);
  std::vector<const ValidationCase*> cases;
  for (ValidationCase& entry : file.cases) {
    ASSERT_TRUE(predict_case(entry, path));
    cases.push_back(&entry);
  }
  EXPECT_EQ(score(cases).cases, 3);
  EXPECT_EQ(score(cases).skipped, 1);
  EXPECT_NEAR(*file.cases[2].figures[0].predicted, 0.25, 1e-12);
  EXPECT_NE(file.cases[1].skipped.find("cases.json:3: schedule.microbatchs: unknown key"),
            std::string::npos)
      << file.cases[1].skipped;
  ASSERT_EQ(file.cases[1].figures.size(), 1U);
  EXPECT_EQ(file.cases[1].figures[0].measured, 0.5);
  EXPECT_NE(validation_json({file}).find(R"("predicted": null, "measured": {"bubble_ratio": 0.5})"),
            std::string::npos);
  std::remove(path.c_str());
}

// A form without keys for it says the dispatcher in its source's words; the plan's own key wins.
TEST(ValidationReader, ADispatcherIsTakenFromWhatTheSourceReports) {
  const auto dispatch = [](const std::string& reported, const std::string& key) {
    const std::string path = ::testing::TempDir() + "cases.json";
    std::ofstream(path) << R"({"cases": [{"id": "a", "measured": {"step_time_s": 1}, "reported":
      {"experts": {"dispatcher": ")"
                        << reported
                        << R"(", "routing": "balanced by construction"}}, "scenario": {"model":
      "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 8, "plan": {"expert_parallel": 8)"
                        << key << "}}}]}";
    Result<ValidationFile> read = read_validation(path, {});
    EXPECT_TRUE(read) << read.error().message;
    const std::optional<Scenario>& scenario = read.value().cases.at(0).scenario;
    EXPECT_TRUE(scenario) << read.value().cases.at(0).skipped;
    EXPECT_EQ(scenario->plan.expert_routing, ExpertRouting::Balanced);
    return scenario->plan.expert_dispatch;
  };
  EXPECT_EQ(dispatch("flex, HybridEP", ""), ExpertDispatch::Deduplicated);
  EXPECT_EQ(dispatch("allgather", ""), ExpertDispatch::AllGather);
  EXPECT_EQ(dispatch("alltoall", ""), ExpertDispatch::AllToAll);
  EXPECT_EQ(dispatch("flex, DeepEP", R"(, "expert_dispatch": "all_to_all")"),
            ExpertDispatch::AllToAll);
}

TEST(ValidationReader, AFileThatIsNoneIsAnError) {
  EXPECT_NE(read_only_case("{}").error, "");
  EXPECT_NE(read_only_case("[1,").error, "");
  EXPECT_NE(read_only_case(R"({"cases": {}})").error, "");
}

// Equal layers on four positions: the two middle ones take the same, the first an embedding more
// and the last a head, and a backward is its two halves but for what the host hides in between.
TEST(PredictCase, AStageIsTheSumOfItsSegments) {
  const auto stage = [](int position) {
    const Read read = read_only_case(
        R"({"cases": [{"id": "a", "measured": {"forward_s": 1, "backward_s": 1,
"input_gradient_s": 1, "weight_gradient_s": 1}, "stage": {"position": )" +
        std::to_string(position) + R"(, "scenario": {"model": "gpt3-175b",
"cluster": "dgx-a100-80gb", "gpus": 32, "plan": {"tensor_parallel": 8, "pipeline_parallel": 4,
"micro_batch": 1, "global_batch": 8}}}}]})");
    EXPECT_EQ(read.skipped, "");
    std::vector<double> seconds;
    for (const Figure& figure : read.figures) seconds.push_back(figure.predicted.value_or(0));
    return seconds;
  };
  const std::vector<double> first = stage(0), second = stage(1), third = stage(2), last = stage(3);
  EXPECT_EQ(second, third);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GE(first[i], second[i]);
    EXPECT_GT(last[i], second[i]);
  }
  EXPECT_NEAR(second[2] + second[3], second[1], 0.02 * second[1]);
}

TEST(PredictCase, AStageThatDoesNotExistIsSkipped) {
  EXPECT_EQ(read_only_case(R"({"cases": [{"id": "a", "measured": {},
"stage": {"position": 2, "scenario": {"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 2,
"plan": {"pipeline_parallel": 2}}}}]})")
                .skipped,
            "cases.json:2: stage.position: position 2 of 2 does not exist");
}

// 1F1B, p = 4, m = 8, F = I = W = 1: (p-1)/(m+p-1) of the makespan is idle.
TEST(PredictCase, AnOrderIsTimedWithItsDurations) {
  ValidationCase entry{.id = "order", .kind = CaseKind::Schedule};
  entry.schedule.name = "1F1B";
  entry.schedule.shape = {.positions = 4, .microbatches = 8};
  entry.figures.push_back({.key = "bubble_ratio", .measured = 3.0 / 11});
  ASSERT_TRUE(predict_case(entry, "cases.json"));
  EXPECT_NEAR(*entry.figures[0].predicted, 3.0 / 11, 1e-12);
  entry.schedule.name = "nobody_knows";
  ASSERT_TRUE(predict_case(entry, "cases.json"));
  EXPECT_TRUE(entry.skipped.starts_with("unknown schedule `nobody_knows`, known are none, "));
}

}  // namespace
}  // namespace rehearse::sim
