// SPDX-License-Identifier: Apache-2.0
// What belongs to a search space: all that the scenario reader accepts, each plan once.
#include "sim/search/space/space.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/sim/search/search_fixture.h"

namespace rehearse::sim {
namespace {

std::string small(const std::string& plan, int gpus = 8) {
  return scenario_of(model_text({.layers = 8}), "dgx-a100-80gb", gpus, plan);
}

TEST(Space, HasPlansThatTheScenarioReaderReadsBackUnchanged) {
  const Space space = space_of(small(R"({"global_batch": 16, "recompute": ["none", "full"]})"));
  const std::vector<Plan> plans = all_plans(space);
  EXPECT_GT(plans.size(), 500U);
  for (std::size_t i = 0; i < plans.size(); i += 7) {
    const Result<Scenario> again =
        parse_scenario(small(plan_json(plans[i], 0)), "again.json", 1, {});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again.value().plan, plans[i]) << plan_json(plans[i], 0);
  }
}

TEST(Space, HasEveryPlanOnce) {
  const Space space = space_of(small(R"({"global_batch": 16})"));
  std::set<std::string> seen;
  for (const Plan& plan : all_plans(space)) {
    EXPECT_TRUE(seen.insert(plan_json(plan, 0)).second) << plan_json(plan, 0);
  }
}

// By hand: t p d of 8 GPUs with t <= 8 dividing 8 heads and p <= 10 chunks: 10 triples.
TEST(Space, HasEveryMeshThatMultipliesToTheGpus) {
  const Space space = space_of(small(R"({"global_batch": 16, "context_parallel": 1})"));
  EXPECT_EQ(meshes(space).size(), 10U);
}

// A grid says t; its rows divide what a micro-batch may have: 4, 8 and 16 samples of 16.
TEST(Space, OfAGridHasItsRanksAndSamplesForItsRows) {
  const Space space = space_of(small(
      R"({"global_batch": 16, "tensor_parallel_2d": [4, 2], "runtime": "rehearse",
          "schedule": "1f1b", "recompute": "none", "dropout": 0})"));
  std::set<std::int32_t> samples;
  for (const Plan& plan : all_plans(space)) {
    EXPECT_EQ(plan.tensor_parallel, 8);
    EXPECT_EQ(plan.tensor_parallel_2d, (TensorGrid{4, 2}));
    samples.insert(plan.micro_batch);
  }
  EXPECT_EQ(samples, (std::set<std::int32_t>{4, 8, 16}));
}

TEST(Space, TakesListsAndRanges) {
  const Space space = space_of(small(
      R"({"global_batch": 16, "tensor_parallel": [2, 4], "pipeline_parallel": {"min": 2},
          "context_parallel": 1, "micro_batch": [1, 2], "zero_stage": 1, "recompute": "full",
          "sequence_parallel": true, "schedule": "1f1b", "precision": ["bf16", "fp16"]})"));
  // tp 2: pp 2 dp 2, pp 4 dp 1; tp 4: pp 2 dp 1: three meshes, two micro-batches, two precisions.
  EXPECT_EQ(all_plans(space).size(), 12U);
}

TEST(Space, TakesListsInsideOverlap) {
  const Space space = space_of(small(
      R"({"global_batch": 16, "tensor_parallel": 2, "pipeline_parallel": 1, "context_parallel": 1,
          "micro_batch": 1, "zero_stage": 0, "recompute": "none", "sequence_parallel": true,
          "runtime": "generic",
          "overlap": {"tensor_parallel": true, "tensor_parallel_chunks": [2, 4, 8]}})"));
  std::set<std::int32_t> chunks;
  for (const Plan& plan : all_plans(space)) chunks.insert(plan.tensor_parallel_chunks);
  EXPECT_EQ(chunks, (std::set<std::int32_t>{2, 4, 8}));
}

// Parts of layers are one value: every plan computes them again, and none does less or more.
TEST(Space, TakesAListOfPartsAsOneValue) {
  const Space space = space_of(small(
      R"({"global_batch": 16, "tensor_parallel": 2, "context_parallel": 1, "runtime": "megatron",
          "recompute": ["norm", "mlp"]})"));
  const std::vector<Plan> plans = all_plans(space);
  EXPECT_FALSE(plans.empty());
  for (const Plan& plan : plans) {
    EXPECT_TRUE(plan.recomputes(RecomputePart::Norm) && plan.recomputes(RecomputePart::Mlp));
    EXPECT_FALSE(plan.recomputes(RecomputePart::AttentionCore));
  }
}

TEST(Space, TakesListsFromTheCommandLine) {
  const ScenarioOptions options{.overrides = {"plan.tensor_parallel=[1,2]", "plan.recompute=full",
                                              "plan.overlap.gradient_reduce=true"},
                                .cluster = {},
                                .gpus = 4,
                                .runtime = {}};
  const Space space =
      parse_space(small(R"({"tensor_parallel": 8, "global_batch": 16})"), "x.json", options)
          .value();
  EXPECT_EQ(space.gpus, 4);
  for (const Plan& plan : all_plans(space)) {
    EXPECT_LE(plan.tensor_parallel, 2);
    EXPECT_EQ(plan.gpus(), 4);
    EXPECT_EQ(plan.recompute, Recompute::full());
    EXPECT_TRUE(plan.overlap_gradient_reduce);
  }
}

// Equal steps under several names: one stage, one rank, no replicas.
TEST(Space, LeavesOutNamesForTheSameStep) {
  const Space space = space_of(small(R"({"global_batch": 16})"));
  for (const Plan& plan : all_plans(space)) {
    EXPECT_TRUE(plan.pipeline_parallel > 1 || plan.schedule == "none");
    EXPECT_TRUE(plan.tensor_parallel > 1 || !plan.sequence_parallel);
    EXPECT_TRUE(plan.data_parallel * plan.context_parallel > 1 || plan.zero_stage == 0);
  }
}

// A stage of ZeRO changes no runtime: all plans have the one that the file has as it stands, and
// what that refuses with a pipeline is no plan.
TEST(Space, HasOneRuntimeForEveryStageOfZero) {
  const auto runtimes = [](const std::string& plan, const ScenarioOptions& options = {}) {
    std::set<std::string> names;
    const Result<Space> space = parse_space(small(plan), "space.json", options);
    EXPECT_TRUE(space) << (space ? "" : space.error().message);
    for (const Plan& one : all_plans(space.value())) names.insert(one.runtime.name);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(runtimes(R"({"global_batch": 16})"), Names{"megatron"});
  EXPECT_EQ(runtimes(R"({"global_batch": 16, "zero_stage": [2, 3]})"), Names{"megatron"});
  EXPECT_EQ(runtimes(R"({"global_batch": 16, "zero_stage": 3})"), Names{"fsdp"});
  EXPECT_EQ(runtimes(R"({"global_batch": 16, "zero_stage": 3})",
                     {.overrides = {"plan.zero_stage=[0, 1, 2, 3]"}}),
            Names{"fsdp"});
  EXPECT_EQ(runtimes(R"({"global_batch": 16})", {.overrides = {"plan.zero_stage=3"}}),
            Names{"megatron"});
  std::int32_t sharded = 0;
  for (const Plan& plan :
       all_plans(space_of(small(R"({"global_batch": 16, "runtime": "megatron_deepspeed"})")))) {
    EXPECT_TRUE(plan.pipeline_parallel == 1 || plan.zero_stage <= 1);
    sharded += plan.zero_stage >= 2 ? 1 : 0;
  }
  EXPECT_GT(sharded, 0);
}

TEST(Space, GivesEveryPlanOneGlobalBatchWhereNoneIsGiven) {
  const Space space = space_of(small("{}"));
  for (const Plan& plan : all_plans(space)) EXPECT_EQ(plan.global_batch, 8);
  EXPECT_EQ(space.base.warnings.size(), 1U);
}

std::string error_of(const std::string& plan) {
  const Result<Space> space = parse_space(small(plan), "x.json", {});
  return space ? "" : space.error().message;
}

TEST(Space, NamesTheKeyThatIsWrong) {
  EXPECT_EQ(error_of(R"({"tensor_parallel": []})"),
            "x.json:1: plan.tensor_parallel: the list is empty: nothing to search");
  EXPECT_EQ(error_of(R"({"tensor_parallel": [1, 0]})"),
            "x.json:1: plan.tensor_parallel[1]: 0 is too small, must be at least 1");
  EXPECT_EQ(error_of(R"({"micro_batch": {"min": 4, "max": 2}})"),
            "x.json:1: plan.micro_batch: min is more than max: nothing to search");
  EXPECT_NE(error_of(R"({"recompute": ["none", "ful"]})").find("plan.recompute[1]: "),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"schedule": ["1f1b", "1f2b"]})"),
            "x.json:1: plan.schedule[1]: unknown schedule \"1f2b\", the nearest known one is 1f1b");
  EXPECT_NE(error_of(R"({"tensor_paralel": [1]})").find("tensor_parallel"), std::string::npos);
}

TEST(Space, SaysWhyNothingIsLegal) {
  const Space space = space_of(small(R"({"tensor_parallel": 3, "global_batch": 16})", 6));
  const Result<SearchResult> result = search(space, cluster_of(space), {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("tests/small.json"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
