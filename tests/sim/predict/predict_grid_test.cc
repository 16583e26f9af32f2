// SPDX-License-Identifier: Apache-2.0
// What must hold of every prediction, over random plans: every idle nanosecond has one cause, the
// parts of memory are the peak, and the same input gives the same bytes.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "schedules/ir/placed_recompute.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"

namespace rehearse::sim {
namespace {

int pick(std::mt19937& random, std::initializer_list<int> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}
const char* pick(std::mt19937& random, std::initializer_list<const char*> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

// A scenario that the plan table allows, most of the time.
std::string random_scenario(std::mt19937& random) {
  const int t = pick(random, {1, 2, 4, 8}), p = pick(random, {1, 2, 3, 4, 8});
  const int d = pick(random, {1, 1, 2, 4, 16}), c = pick(random, {1, 1, 1, 2});
  const int v = pick(random, {2, 3}), micro = pick(random, {1, 2});
  const int m = pick(random, {1, 2, 4, 8, 12, 16});
  const std::string schedule =
      p == 1 ? "none"
             : pick(random, {"naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1",
                             "zb_v", "eager_1f1b", "dualpipev", "chimera"});
  const bool chunks = schedule == "interleaved_1f1b" || schedule == "looped_bfs";
  const int zero = pick(random, {0, 0, 1, 2, 3});
  const char* cluster =
      pick(random, {"dgx-a100-80gb", "dgx-h100", "aws-p4d-24xlarge", "rtx4090-8"});
  std::string text = "{\"model\": \"models/";
  text += pick(random, {"gpt2-124m", "llama3.2-1b"});
  text += ".json\", \"cluster\": \"clusters/" + std::string(cluster) + ".json\", \"plan\": {";
  text += "\"tensor_parallel\": " + std::to_string(t);
  text += ", \"pipeline_parallel\": " + std::to_string(p);
  text += ", \"context_parallel\": " + std::to_string(c);
  text += ", \"data_parallel\": " + std::to_string(d);
  text += ", \"schedule\": \"" + schedule + "\"";
  if (chunks) text += ", \"virtual_stages\": " + std::to_string(v);
  text += ", \"micro_batch\": " + std::to_string(micro);
  text += ", \"global_batch\": " + std::to_string(micro * d * m);
  text += ", \"sequence_length\": 512, \"zero_stage\": " + std::to_string(zero);
  text += ", \"sequence_parallel\": " + std::string(pick(random, {"true", "false"}));
  text += ", \"recompute\": \"" + std::string(pick(random, {"none", "selective", "full"})) + "\"";
  text += ", \"overlap\": {\"gradient_reduce\": " + std::string(pick(random, {"true", "false"}));
  text += ", \"parameter_gather\": " + std::string(pick(random, {"true", "false"})) + "}";
  text += ", \"offload\": \"" +
          std::string(pick(random, {"none", "none", "optimizer", "activations"})) + "\"";
  text += ", \"prefetch\": " + std::to_string(pick(random, {1, 1, 0, 2}));
  text += ", \"runtime\": \"" +
          std::string(pick(random, {"rehearse", "rehearse", zero == 3 ? "fsdp" : "megatron",
                                    zero == 3 ? "torchtitan" : "aa_scaling",
                                    zero == 3 ? "fsdp_torch1" : "megatron_2021"})) +
          "\"}}";
  return text;
}

TEST(PredictGrid, CausesArePartsOfIdleTimeAndPartsOfMemoryAreThePeak) {
  std::mt19937 random(20240607);
  int predicted = 0, refused = 0, placed = 0;
  for (int trial = 0; predicted < 500; ++trial) {
    ASSERT_LT(trial, 4000) << "too few of the random scenarios are legal";
    const std::string text = random_scenario(random);
    const Result<Scenario> scenario = parse_scenario(text, "random.json", 1, {});
    if (!scenario) {
      ++refused;
      continue;
    }
    const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
    ASSERT_TRUE(cluster) << cluster.error().message;
    const Result<Prediction> made = predict(scenario.value(), cluster.value());
    ASSERT_TRUE(made) << made.error().message << '\n' << text;
    const Prediction& p = made.value();
    const Validation proof = validate(p.schedule, {.compute_order = &p.order});
    for (const Violation& v : proof.violations) {
      ADD_FAILURE() << v.rule << ": " << v.message << '\n' << text;
    }
    // Idle time, in integers: per row, and over all ranks.
    std::int64_t idle = 0, busy = 0, ranks = 0;
    for (std::size_t r = 0; r < p.bubbles.rows.size(); ++r) {
      const RowBubbles& row = p.bubbles.rows[r];
      EXPECT_EQ(std::accumulate(row.causes.begin(), row.causes.end(), std::int64_t{0}), row.idle);
      EXPECT_EQ(row.busy + row.idle, p.timeline.step().value);
      const std::int64_t multiplicity = p.schedule.rows[r].multiplicity;
      idle += multiplicity * row.idle;
      busy += multiplicity * row.busy;
      ranks += multiplicity;
    }
    EXPECT_EQ(idle, p.bubbles.idle);
    EXPECT_EQ(busy, p.bubbles.busy);
    EXPECT_EQ(ranks, p.gpus);
    EXPECT_EQ(std::accumulate(p.bubbles.causes.begin(), p.bubbles.causes.end(), std::int64_t{0}),
              idle);
    for (const RankMemory& rank : p.memory.ranks) {
      EXPECT_EQ(rank.parts.allocated(), rank.peak_allocated) << text;
      EXPECT_LE(rank.peak_allocated, rank.peak_reserved);
      EXPECT_EQ(rank.peak_device,
                rank.peak_reserved + rank.parts.communicators + rank.parts.context);
    }
    double confidence = 0;
    for (const double share : p.confidence) confidence += share;
    EXPECT_NEAR(confidence, 1, 1e-9);
    if (p.plan.recompute.any() && p.plan.pipeline_parallel > 1) {  // in its bubbles, too
      Scenario apart = scenario.value();
      apart.plan.places_recompute = true;
      const Result<Prediction> other = predict(apart, cluster.value());
      ASSERT_TRUE(other) << other.error().message << '\n' << text;
      const Prediction& q = other.value();
      const Validation sound = validate(q.schedule, {.compute_order = &q.order});
      for (const Violation& v : sound.violations) {
        ADD_FAILURE() << v.rule << ": " << v.message << '\n' << text;
      }
      EXPECT_EQ(q.recomputed_flops, p.recomputed_flops);
      placed += PlacedRecompute(q.order).any() ? 1 : 0;
    }
    if (predicted % 5 == 0) {  // two runs, the same bytes
      const Result<Prediction> again = predict(scenario.value(), cluster.value());
      EXPECT_EQ(report_json(p, scenario.value(), cluster.value()),
                report_json(again.value(), scenario.value(), cluster.value()));
      // Who needs no lifetimes gets the same numbers.
      const Result<Prediction> bare =
          predict(scenario.value(), cluster.value(), {.lifetimes = false});
      EXPECT_EQ(p.timeline.start, bare.value().timeline.start);
      EXPECT_EQ(p.timeline.end, bare.value().timeline.end);
      EXPECT_EQ(p.bubbles.causes, bare.value().bubbles.causes);
      EXPECT_EQ(p.energy_j, bare.value().energy_j);
      EXPECT_EQ(p.memory.peak_device, bare.value().memory.peak_device);
    }
    ++predicted;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(placed, 20);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace rehearse::sim
