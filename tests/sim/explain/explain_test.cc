// SPDX-License-Identifier: Apache-2.0
// Why one step takes longer than another: the causes add up, to the nanosecond, whatever two steps
// are compared and however finely each of them is known.
#include "sim/explain/explanation.h"

#include <gtest/gtest.h>

#include <bit>

#include "schedules/base/json_reader.h"
#include "sim/explain/breakdown_of.h"
#include "sim/predict/predicted_trace.h"
#include "sim/report/report.h"
#include "tests/random_scenario.h"

namespace rehearse::sim {
namespace {

std::int64_t sum(const Breakdown& of) {
  std::int64_t all = 0;
  for (const Share& share : of.shares) all += share.ns;
  return all;
}

// What must hold of any two.
void expect_adds_up(const Explanation& e, const std::string& what) {
  std::int64_t a = 0, b = 0, difference = 0;
  CauseSet seen = 0;
  for (const CauseDifference& cause : e.causes) {
    EXPECT_GE(cause.a, 0) << what;
    EXPECT_GE(cause.b, 0) << what;
    EXPECT_FALSE(words_of(cause.causes).empty()) << what;
    seen |= cause.causes;
    a += cause.a;
    b += cause.b;
    difference += cause.difference();
  }
  EXPECT_EQ(a, e.a.breakdown.step_ns) << what;
  EXPECT_EQ(b, e.b.breakdown.step_ns) << what;
  EXPECT_EQ(difference, e.b.breakdown.step_ns - e.a.breakdown.step_ns) << what;
  EXPECT_FALSE(e.sentence.empty()) << what;
}

struct Predicted {
  Scenario scenario;
  Cluster cluster;
  Prediction prediction;

  Explained side() const { return explained(prediction, scenario, cluster); }
  Explained report() const {
    const auto read = parse_json(report_json(prediction, scenario, cluster), "report");
    return explained(read.value(), "report").value();
  }
  Explained trace() const { return explained(predicted_trace(prediction, scenario, cluster)); }
};

std::optional<Predicted> predicted(const Scenario& scenario, const Cluster& cluster) {
  Result<Prediction> made = predict(scenario, cluster, {});
  if (!made || made.value().timeline.step().value <= 0) return {};
  return Predicted{scenario, cluster, std::move(made).value()};
}

Predicted shipped(const std::string& name, const std::vector<std::string>& set) {
  const Scenario scenario = read_scenario(name, {.overrides = set}).value();
  const Cluster cluster = read_cluster(scenario.cluster).value();
  return *predicted(scenario, cluster);
}

TEST(Explain, AddsUpOverTwoHundredRandomPairs) {
  std::vector<Predicted> drawn;
  std::size_t pairs = 0, schedules_differ = 0;
  for (std::uint64_t seed = 1; pairs < 200; ++seed) {
    const RandomScenario random =
        random_scenario(seed, {.most_gpus = 16, .most_microbatches = 8, .shipped_models = false});
    std::optional<Predicted> made = predicted(random.scenario, random.cluster);
    if (!made) continue;
    drawn.push_back(std::move(*made));
    if (drawn.size() < 2) continue;
    const Predicted &a = drawn[drawn.size() - 2], &b = drawn.back();
    const std::string what = "seeds up to " + std::to_string(seed);
    // As finely as both are known, and with what a report and a trace leave out.
    expect_adds_up(explain(a.side(), b.side()), what);
    expect_adds_up(explain(a.report(), b.side()), what + ", report");
    expect_adds_up(explain(a.side(), b.trace()), what + ", trace");
    expect_adds_up(explain(a.report(), b.trace()), what + ", report and trace");
    if (a.prediction.plan.schedule != b.prediction.plan.schedule) ++schedules_differ;
    ++pairs;
    if (drawn.size() > 2) drawn.erase(drawn.begin());
  }
  EXPECT_GT(schedules_differ, 50u);
}

// What is idle is what the simulator counted: per cause, over all ranks, within half a nanosecond
// of each rank's mean.
TEST(Explain, CausesAreThoseOfTheReport) {
  const Predicted p = shipped("3d-8-gpus", {});
  const Breakdown of = p.side().breakdown;
  ASSERT_EQ(sum(of), of.step_ns);
  const auto share = [&](CauseSet causes) {
    std::int64_t ns = 0;
    for (const Share& one : of.shares) ns += (one.causes & causes) != 0 ? one.ns : 0;
    return ns;
  };
  const Causes& causes = p.prediction.bubbles.causes;
  const auto of_cause = [&](IdleCause cause) { return causes[static_cast<std::size_t>(cause)]; };
  const auto near = [&](CauseSet which, std::int64_t of_all_ranks, std::int64_t rounding) {
    EXPECT_LE(std::llabs(share(which) - of_all_ranks / p.prediction.bubbles.ranks), rounding)
        << words_of(which);
  };
  near(set_of({Cause::Warmup}), of_cause(IdleCause::Warmup), 2);
  near(set_of({Cause::Cooldown}), of_cause(IdleCause::Cooldown), 2);
  near(kCommunication, of_cause(IdleCause::Communication) + of_cause(IdleCause::Contention), 8);
  near(kComputing, p.prediction.bubbles.busy, 14);
  EXPECT_GT(share(set_of({Cause::TensorGroup})), 0);
  EXPECT_GT(share(set_of({Cause::ForwardProducts})), 0);
}

// GPipe fills and drains as long as 1F1B does, and keeps what every micro-batch needs.
TEST(Explain, GpipeAgainst1f1b) {
  const Predicted a = shipped("3d-8-gpus", {"plan.schedule=1f1b"}),
                  b = shipped("3d-8-gpus", {"plan.schedule=gpipe"});
  const Explanation e = explain(a.side(), b.side());
  expect_adds_up(e, "gpipe");
  const auto filling =
      std::ranges::find(e.causes, set_of({Cause::Warmup}), &CauseDifference::causes);
  ASSERT_NE(filling, e.causes.end());
  EXPECT_GT(filling->a, 0);
  EXPECT_LE(std::llabs(filling->difference()), filling->a / 10);
  const auto key = std::ranges::find(e.keys, "plan.schedule", &DifferingKey::key);
  ASSERT_NE(key, e.keys.end());
  EXPECT_EQ(key->a.text(), "1f1b");
  EXPECT_EQ(key->b.text(), "gpipe");
  // All micro-batches' activations live at once.
  const auto activations = std::ranges::find(e.memory, "activations", &MemoryDifference::part);
  ASSERT_NE(activations, e.memory.end());
  EXPECT_GT(activations->b, activations->a);
}

// One change has one cause.
TEST(Explain, RecomputationIsComputedAgain) {
  const Explanation e = explain(shipped("3d-8-gpus", {"plan.recompute=none"}).side(),
                                shipped("3d-8-gpus", {"plan.recompute=full"}).side());
  expect_adds_up(e, "recompute");
  EXPECT_EQ(words_of(e.causes.front().causes), "recomputation");
  EXPECT_EQ(e.causes.front().a, 0);
  ASSERT_EQ(e.keys.size(), 1u);
  EXPECT_EQ(e.keys.front().key, "plan.recompute");
  EXPECT_NE(e.sentence.find("B takes"), std::string::npos);
  EXPECT_NE(e.sentence.find("longer than A"), std::string::npos);
  EXPECT_NE(e.sentence.find("recomputation"), std::string::npos);
}

TEST(Explain, AStepIsAsLongAsItself) {
  const Explained side = shipped("3d-8-gpus", {}).side();
  const Explanation e = explain(side, side);
  EXPECT_EQ(e.sentence, "B takes as long as A, for the same causes.");
  EXPECT_TRUE(e.keys.empty());
}

// A profile knows products and no forward, our trace the forward and no products: what both know is
// that the two compute. A cause that one of them surely lacks does not join the others.
TEST(Explain, ComparesByWhatBothKnow) {
  const Breakdown ours{
      .step_ns = 10,
      .shares = {{kForward, 3}, {kBackward | kRecompute, 5}, {set_of({Cause::Host}), 2}}};
  const Breakdown profile{
      .step_ns = 12,
      .shares = {
          {set_of({Cause::ForwardProducts, Cause::BackwardProducts, Cause::RecomputeProducts}), 7},
          {set_of({Cause::ForwardAttention, Cause::BackwardAttention, Cause::RecomputeAttention}),
           2},
          {kWaiting, 3}}};
  const auto found = differences(ours, profile);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].a + found[1].a, 10);
  EXPECT_EQ(found[0].b + found[1].b, 12);

  Breakdown whole{.step_ns = 9, .shares = {}};
  for (std::size_t c = 0; c < kNumCauses; ++c) {
    const auto cause = static_cast<Cause>(c);
    const bool some = cause == Cause::ForwardProducts || cause == Cause::BackwardAttention;
    whole.shares.push_back({set_of({cause}), some ? 4 : cause == Cause::Warmup ? 1 : 0});
  }
  // Nothing is computed again in `whole`: products and attention stay apart.
  const auto apart = differences(whole, profile);
  std::set<std::string> words;
  for (const CauseDifference& cause : apart) words.insert(words_of(cause.causes));
  EXPECT_TRUE(words.contains("matrix products"));
  EXPECT_TRUE(words.contains("attention"));
}

TEST(Explain, DividesExactly) {
  const std::vector<double> weights{0, 1, 1, 1, 0, 1e-30, 7};
  for (const std::int64_t total : {0LL, 1LL, 2LL, 10LL, 999999999989LL}) {
    const auto parts = divided(total, weights);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), total);
    EXPECT_EQ(parts[0], 0);
    EXPECT_EQ(parts[4], 0);
    for (const std::int64_t part : parts) EXPECT_GE(part, 0);
  }
  EXPECT_EQ(divided(10, std::vector<double>{0, 0}), (std::vector<std::int64_t>{10, 0}));
}

// Every set that a source may tell has words of its own.
TEST(Explain, EveryCauseHasWords) {
  std::set<std::string> words;
  for (std::size_t c = 0; c < kNumCauses; ++c) words.insert(words_of(CauseSet{1} << c));
  EXPECT_EQ(words.size(), kNumCauses);
  EXPECT_EQ(words_of(kForward), "forward");
  EXPECT_EQ(words_of(kWaiting), "waiting between ops");
  EXPECT_EQ(words_of(kEveryCause), "the whole step");
}

TEST(Explain, ReportsThatAreNoneAreRefused) {
  const auto refused = [](const std::string& text) {
    const auto read = parse_json(text, "r.json");
    const auto result = explained(read.value(), "r.json");
    return result ? std::string("accepted") : result.error().message;
  };
  EXPECT_NE(refused("{}").find("schema"), std::string::npos);
  EXPECT_NE(refused(R"({"schema": "rehearse.comparison/1"})").find("no report of a step"),
            std::string::npos);
  EXPECT_NE(
      refused(R"({"schema": "rehearse.prediction/1", "step_time_s": "1"})").find("step_time_s"),
      std::string::npos);
  EXPECT_NE(refused(R"({"schema": "rehearse.prediction/1", "step_time_s": -1, "gpus": 1,
                       "idle_ns": 0, "bubble_causes_ns": {}, "memory": {}, "plan": {}, "name": ""})")
                .find("is no step"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
