// SPDX-License-Identifier: Apache-2.0
// GPUs that differ: equal ones change nothing, a slow one costs what the closed forms say, and who
// waits for it is told.
#include "sim/predict/corrected/variation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "schedules/ir/listing.h"
#include "schedules/proof/validate.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Scenario scenario_of(const std::string& plan, const std::string& variation = "null") {
  const std::string text = R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "plan": {)" +
                           plan + R"(}, "variation": )" + variation + "}";
  Result<Scenario> read = parse_scenario(text, "test", 1, {});
  EXPECT_TRUE(read) << read.error().message;
  return std::move(read).value();
}

Prediction predicted(const Scenario& scenario) {
  const Result<Cluster> cluster = read_cluster(scenario.cluster);
  EXPECT_TRUE(cluster);
  Result<Prediction> made = predict(scenario, cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

std::int64_t waited_for_stragglers(const Prediction& p) {
  return p.bubbles.causes[static_cast<std::size_t>(IdleCause::Straggler)];
}

// Data parallelism alone, nothing overlapped: no replica waits for another before the end.
const char* const kReplicas =
    R"("data_parallel": 8, "micro_batch": 1, "global_batch": 32, "sequence_length": 1024,
       "overlap": {"gradient_reduce": false, "parameter_gather": false})";

const char* const kPlans[] = {
    kReplicas,
    R"("data_parallel": 4, "pipeline_parallel": 4, "tensor_parallel": 2, "schedule": "1f1b",
       "micro_batch": 1, "global_batch": 32, "sequence_length": 1024, "zero_stage": 1)",
    R"("data_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2, "tensor_parallel": 2,
       "schedule": "interleaved_1f1b", "virtual_stages": 2, "micro_batch": 1, "global_batch": 8,
       "sequence_length": 1024)",
    R"("data_parallel": 4, "pipeline_parallel": 4, "schedule": "dualpipe", "micro_batch": 1,
       "global_batch": 32, "sequence_length": 1024)",
    R"("data_parallel": 4, "zero_stage": 3, "micro_batch": 1, "global_batch": 8,
       "sequence_length": 1024, "runtime": "fsdp")",
    R"("data_parallel": 4, "zero_stage": 3, "micro_batch": 1, "global_batch": 8,
       "sequence_length": 1024, "runtime": "rehearse")",
    R"("data_parallel": 4, "zero_stage": 1, "micro_batch": 1, "global_batch": 8,
       "sequence_length": 1024, "optimizer": "muon")",
};

// Rows of ranges of equal replicas: the proof still holds, and not a nanosecond changes.
TEST(Variation, ReplicasOfTheirOwnWithEqualSpeedsTakeTheSameTime) {
  for (const char* plan : kPlans) {
    const Scenario scenario = scenario_of(plan);
    const Prediction folded = predicted(scenario);
    Scenario equal = scenario;
    equal.variation.slow = {{0, 0, 1.0}};
    EXPECT_EQ(predicted(equal).timeline.step().value, folded.timeline.step().value) << plan;
    equal.variation.slow = {{0, 0, 1 - 1e-9}};  // a row of its own, of which no op rounds up
    const Prediction apart = predicted(equal);
    EXPECT_GT(apart.schedule.num_rows(), folded.schedule.num_rows()) << plan;
    EXPECT_NEAR(static_cast<double>(apart.timeline.step().value),
                static_cast<double>(folded.timeline.step().value),
                1e-6 * static_cast<double>(folded.timeline.step().value))
        << plan;

    const std::int32_t c = folded.plan.context_parallel;
    std::vector<std::int32_t> begins;
    for (std::int32_t d = 0; d < folded.plan.data_parallel; ++d) begins.push_back(d * c);
    const Schedule split = split_replicas(folded.schedule, folded.plan, begins);
    EXPECT_EQ(split.num_rows(), folded.schedule.num_rows() * folded.plan.data_parallel) << plan;
    const Validation proof = validate(split);
    EXPECT_TRUE(proof.sound()) << plan << ": " << proof.violations.front().message;
  }
}

// Replicas on one NIC take turns on it, and GPUs of one PCIe switch share it, whether they are one
// row or two.
TEST(Variation, ReplicasToldApartShareLinksAsBefore) {
  for (const char* keys :
       {R"("jean-zay-a100-80gb", "plan": {"pipeline_parallel": 4, "schedule": "1f1b")",
        R"("jean-zay-a100-80gb", "plan": {"pipeline_parallel": 4, "schedule": "interleaved_1f1b")",
        R"("dgx-a100-80gb", "plan": {"offload": "activations")"}) {
    const std::string text = R"({"model": "gpt2-355m", "cluster": )" + std::string(keys) +
                             R"(, "data_parallel": 8, "micro_batch": 2, "global_batch": 64,
                                 "sequence_length": 1024}})";
    const Result<Scenario> read = parse_scenario(text, "shared", 1, {});
    ASSERT_TRUE(read) << read.error().message;
    const auto folded = static_cast<double>(predicted(read.value()).timeline.step().value);
    Scenario apart = read.value();
    apart.variation.slow = {{0, 0, 1 - 1e-9}};
    const auto split = static_cast<double>(predicted(apart).timeline.step().value);
    EXPECT_NEAR(split / folded, 1, 1e-4) << keys;
  }
}

// All GPUs at half the speed: compute takes twice as long, and nobody waits for anybody.
TEST(Variation, WhereAllAreSlowNobodyIsAStraggler) {
  const Prediction plain = predicted(scenario_of(kReplicas));
  const Prediction slow =
      predicted(scenario_of(kReplicas, R"({"slow": [{"ranks": "0-7", "speed": 0.5}]})"));
  EXPECT_EQ(slow.schedule.num_rows(), 1);
  EXPECT_EQ(waited_for_stragglers(slow), 0);
  EXPECT_NEAR(static_cast<double>(slow.bubbles.busy), 2.0 * static_cast<double>(plain.bubbles.busy),
              1e-4 * static_cast<double>(plain.bubbles.busy));
}

// One replica of eight computes at 0.8 of the speed: the step is longer by a quarter of its
// compute, and this the seven others wait for it, each.
TEST(Variation, ReplicasWaitForTheSlowOneWhatItTakesLonger) {
  const Prediction plain = predicted(scenario_of(kReplicas));
  const Prediction slow =
      predicted(scenario_of(kReplicas, R"({"slow": [{"ranks": 3, "speed": 0.8}]})"));
  EXPECT_EQ(slow.schedule.num_rows(), 3);  // ranks 0-2, 3, 4-7
  // The optimizer runs behind the reduction: the slow rank's tail is its own.
  const std::int64_t longer = (slow.timeline.step() - plain.timeline.step()).value;
  EXPECT_NEAR(static_cast<double>(longer), 0.25 * static_cast<double>(plain.bubbles.rows[0].busy),
              1e-3 * static_cast<double>(longer));
  EXPECT_NEAR(static_cast<double>(waited_for_stragglers(slow)), 7.0 * static_cast<double>(longer),
              1e-3 * static_cast<double>(longer));
}

// One GPU of a tensor-parallel group of 4: the group takes its speed, and the three others wait
// inside the ops, 3/4 of what it adds on average.
TEST(Variation, InsideATensorParallelGroupTheMeanRankWaits) {
  const std::string plan =
      R"("tensor_parallel": 4, "data_parallel": 1, "micro_batch": 1, "global_batch": 4,
                              "sequence_length": 1024)";
  Scenario one = scenario_of(plan, R"({"slow": [{"ranks": "2", "speed": 0.8}]})");
  const Prediction slow = predicted(one);
  one.variation.slow = {{0, 3, 0.8}};
  const Prediction all = predicted(one);
  EXPECT_EQ(slow.timeline.step().value, all.timeline.step().value);
  EXPECT_EQ(waited_for_stragglers(all), 0);
  const double added = 0.2 * static_cast<double>(all.bubbles.busy);  // 1/0.8 - 1 of 1/0.8
  EXPECT_NEAR(static_cast<double>(waited_for_stragglers(slow)), 3.0 / 4 * added, 1e-3 * added);
}

// A slow stage of one replica delays that replica alone; the other waits, and its wait is told.
TEST(Variation, ASlowStageDelaysItsReplica) {
  const Prediction plain = predicted(scenario_of(kPlans[1]));
  const Prediction slow =
      predicted(scenario_of(kPlans[1], R"({"slow": [{"ranks": "0-1", "speed": 0.8}]})"));
  EXPECT_GT(slow.timeline.step().value, plain.timeline.step().value);
  // The 24 ranks of the three other replicas wait for what its step is longer, or nearly.
  const double longer = static_cast<double>((slow.timeline.step() - plain.timeline.step()).value);
  EXPECT_GT(static_cast<double>(waited_for_stragglers(slow)), 0.9 * 24 * longer);
  for (const RowBubbles& row : slow.bubbles.rows) {
    std::int64_t sum = 0;
    for (const std::int64_t cause : row.causes) {
      EXPECT_GE(cause, 0);
      sum += cause;
    }
    EXPECT_EQ(sum, row.idle);
    EXPECT_EQ(row.idle + row.busy, slow.timeline.step().value);
  }
}

// The expected largest of n normals: 1.0296 sigma for 4, 1.7660 for 16 (Harter, Biometrika 48,
// 1961, table 1). Tensor-parallel groups of 4 take their maximum, 16 replicas theirs: 64 draws,
// 2.3437 sigma.
TEST(Variation, TheSlowestOfManyIsSlowerAsOrderStatisticsSay) {
  constexpr double kSigma = 0.02;
  constexpr int kSeeds = 400;
  const auto mean_of_largest = [&](int t, int d) {
    Plan plan = scenario_of(kReplicas).plan;
    plan.tensor_parallel = t;
    plan.data_parallel = d;
    double sum = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      Variation variation{.seed = seed, .speed_sigma = kSigma};
      const ReplicaClasses classes = replica_classes(variation, plan);
      EXPECT_LE(classes.begins.size(), static_cast<std::size_t>(kMostRanges));
      sum += std::ranges::max(classes.factor);
    }
    return (sum / kSeeds - 1) / kSigma;
  };
  // 1/(1 - x) is a little more than 1 + x, and a mean of 400 has an error of its own.
  EXPECT_NEAR(mean_of_largest(4, 1), 1.0296, 0.1);
  EXPECT_NEAR(mean_of_largest(1, 16), 1.7660, 0.15);
  EXPECT_NEAR(mean_of_largest(4, 16), 2.3437, 0.2);
}

// Luck is a function of the seed.
TEST(Variation, TheSameSeedGivesTheSameStep) {
  const auto step = [](const char* variation) {
    return predicted(scenario_of(kPlans[1], variation)).timeline.step().value;
  };
  const std::int64_t first = step(R"({"seed": 1, "speed_sigma": 0.02, "jitter_sigma": 0.05})");
  EXPECT_EQ(first, step(R"({"seed": 1, "speed_sigma": 0.02, "jitter_sigma": 0.05})"));
  EXPECT_NE(first, step(R"({"seed": 2, "speed_sigma": 0.02, "jitter_sigma": 0.05})"));
  EXPECT_GT(first, predicted(scenario_of(kPlans[1])).timeline.step().value);
}

TEST(Variation, ShardGroupsAreRefused) {
  const Scenario scenario = scenario_of(
      R"("data_parallel": 4, "zero_stage": 3, "shard_group": 2, "micro_batch": 1,
         "global_batch": 4, "sequence_length": 128, "runtime": "fsdp")",
      R"({"speed_sigma": 0.01})");
  const Result<Cluster> cluster = read_cluster(scenario.cluster);
  const Result<Prediction> made = predict(scenario, cluster.value());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("shard groups"), std::string::npos);
}

TEST(Variation, AParameterServerIsRefused) {
  const Scenario scenario = scenario_of(
      R"("data_parallel": 4, "data_parallel_algorithm": "parameter_server", "micro_batch": 1,
         "global_batch": 4, "sequence_length": 128)",
      R"({"speed_sigma": 0.01})");
  const Result<Cluster> cluster = read_cluster(scenario.cluster);
  const Result<Prediction> made = predict(scenario, cluster.value());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("parameter server"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
