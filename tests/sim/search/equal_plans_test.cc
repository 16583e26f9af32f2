// SPDX-License-Identifier: Apache-2.0
// Plans that a prediction cannot tell apart are one row; memory that is kept free; what frameworks
// can launch.
#include "sim/search/equal_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/schedules/runtime/runtime_named.h"
#include "tests/sim/search/search_fixture.h"

namespace rehearse::sim {
namespace {

FoundPlan found(double step_s, std::int32_t tensor, std::int32_t pipeline) {
  FoundPlan plan;
  plan.step_s = step_s;
  plan.plan.global_batch = plan.plan.sequence_length = 1;
  plan.plan.tensor_parallel = tensor;
  plan.plan.pipeline_parallel = pipeline;
  return plan;
}

// 1.00, 1.03 and 1.07 lie within 8 % of the first; 1.10 begins a row, which 1.17 joins.
TEST(EqualPlans, TheSimplestOfARowIsShown) {
  const std::vector<FoundPlan> rows =
      merge_equal({found(1.00, 2, 2), found(1.03, 1, 1), found(1.07, 8, 1), found(1.10, 4, 1),
                   found(1.17, 4, 2)},
                  std::log(1.08));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].step_s, 1.03);
  ASSERT_EQ(rows[0].equal.size(), 2u);
  EXPECT_EQ(rows[0].equal[0].step_s, 1.00);
  EXPECT_EQ(rows[0].equal[1].step_s, 1.07);
  EXPECT_EQ(rows[1].step_s, 1.10);
  EXPECT_EQ(rows[1].equal.size(), 1u);
}

TEST(EqualPlans, ADifferenceOfNothingMergesNothing) {
  EXPECT_EQ(merge_equal({found(1, 2, 2), found(1.001, 1, 1)}, 0).size(), 2u);
}

const char* const kPlan = R"({"global_batch": 16, "sequence_length": 512})";

// The same search with and without rows: no plan is lost, and none is in two rows.
TEST(EqualPlans, RowsHoldEveryPlanOnce) {
  const Space space =
      space_of(scenario_of(model_text({}), "clusters/dgx-a100-80gb.json", 8,
                           R"({"global_batch": 16, "schedule": "1f1b", "micro_batch": 1})"));
  const Cluster cluster = cluster_of(space);
  const SearchOptions plain{.top = 1000, .explain = false};
  SearchOptions merged = plain;
  merged.merge = true;
  const SearchResult all = search(space, cluster, plain).value();
  const SearchResult rows = search(space, cluster, merged).value();
  std::size_t plans = 0;
  for (const FoundPlan& row : rows.best) plans += 1 + row.equal.size();
  EXPECT_EQ(plans, all.best.size());
  EXPECT_LT(rows.best.size(), all.best.size());
  EXPECT_EQ(rows.fastest_s, all.best.front().step_s);
}

// Nothing that is listed takes more than the capacity less what is kept free.
TEST(Search, KeepsHeadroomFree) {
  const Space space = space_of(
      scenario_of(model_text({.layers = 24, .hidden = 4096, .heads = 32, .sequence = 2048}),
                  "clusters/dgx-a100-80gb.json", 8, R"({"global_batch": 64})"));
  const Cluster cluster = cluster_of(space);
  const SearchOptions all{.top = 5, .explain = false};
  SearchOptions half = all;
  half.headroom = 0.5;
  const SearchResult tight = search(space, cluster, half).value();
  ASSERT_FALSE(tight.best.empty());
  for (const FoundPlan& plan : tight.best) {
    EXPECT_LE(plan.peak_device, cluster.capacity().value / 2);
  }
  EXPECT_GT(search(space, cluster, all).value().best.front().peak_device,
            cluster.capacity().value / 2);
}

Framework named(const std::string& name) {
  const std::vector<Framework> all = shipped_frameworks().value();
  for (const Framework& framework : all) {
    if (framework.name == name) return framework;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(Framework, SaysWhatItCanLaunch) {
  Plan plan = found(1, 1, 4).plan;
  plan.schedule = "1f1b";
  plan.zero_stage = 1;
  EXPECT_TRUE(named("megatron").launches(plan));
  EXPECT_FALSE(named("torchtitan").launches(plan));  // no ZeRO-1
  plan.schedule = "zb_v";
  EXPECT_FALSE(named("megatron").launches(plan));
  plan.zero_stage = 2;
  EXPECT_TRUE(named("torchtitan").launches(plan));
  plan.zero_stage = 3;
  plan.schedule = "1f1b";
  EXPECT_FALSE(named("deepspeed").launches(plan));  // ZeRO-3 has no pipeline there
  plan.pipeline_parallel = 1;
  EXPECT_TRUE(named("deepspeed").launches(plan));
}

// What pairs of a framework hide at most, and what its profile does where the plan is silent, are
// of two files: they must not contradict each other.
TEST(Framework, DoesWhatItsProfileDoesByDefault) {
  const std::vector<Framework> all = shipped_frameworks().value();
  for (const Framework& framework : all) {
    const RuntimeTraits profile = runtime_named(framework.runtimes.front());
    const bool pairs = framework.runs("dualpipe") || framework.runs("dualpipev");
    EXPECT_TRUE(!pairs || profile.overlap_pair >= framework.pairs) << framework.name;
  }
}

// What a framework did once is of a profile of that time: who asks about it gets today's.
TEST(Framework, IsPricedAsItIsToday) {
  const RuntimeTraits today = runtime_named(named("deepspeed").runtimes.front());
  EXPECT_EQ(today.listed_elements, 0);
  EXPECT_FALSE(today.drains_at_transfer);
  const RuntimeTraits once = runtime_named("megatron_deepspeed");
  EXPECT_GT(once.listed_elements, 0);
  EXPECT_TRUE(once.drains_at_transfer);
}

TEST(Framework, IsNotLaunchedOnGpusThatItDoesNotRunOn) {
  const std::vector<Framework> all = shipped_frameworks().value();
  const auto on = [&](const std::string& name, const std::string& vendor) {
    return runs_not_on(all, name, {.vendor = vendor});
  };
  EXPECT_EQ(on("megatron", "aws"), "Megatron-LM runs on no GPU of aws");
  EXPECT_EQ(on("megatron_2021", "aws"), "Megatron-LM runs on no GPU of aws");  // by its profile
  EXPECT_EQ(on("torchtitan", "nvidia"), "");
  EXPECT_EQ(on("fsdp", "amd"), "");
  EXPECT_EQ(on("rehearse", "aws"), "");  // not among the released
  EXPECT_EQ(on("megatron", ""), "");     // a CPU, a GPU of one's own
}

// A plan of Megatron-LM's profile with torch's order: another framework is needed.
TEST(Framework, IsNamedWhereAnotherOneIsNeeded) {
  const std::vector<Framework> all = shipped_frameworks().value();
  Plan plan = found(1, 1, 4).plan;
  plan.schedule = "zb_v";
  EXPECT_EQ(launched_elsewhere(all, plan), "torchtitan");
  plan.schedule = "dualpipe";
  EXPECT_EQ(launched_elsewhere(all, plan), "no released framework");
  plan.schedule = "1f1b";
  EXPECT_EQ(launched_elsewhere(all, plan), "");
  plan.runtime.name = "rehearse";  // no framework's
  plan.schedule = "dualpipe";
  EXPECT_EQ(launched_elsewhere(all, plan), "");
}

// What no framework can launch is left out, and the schedules that none runs are named; unless the
// plan names its schedule, or our executor performs it.
TEST(Framework, ASearchLeavesOutWhatNobodyLaunches) {
  const auto space_with = [](const std::string& more) {
    return space_of(scenario_of(model_text({}), "clusters/dgx-a100-80gb.json", 8,
                                R"({"global_batch": 16)" + more + "}"));
  };
  const std::vector<Framework> all = shipped_frameworks().value();
  Space space = space_with("");
  const std::vector<std::string> left_out = keep_released(space, all);
  EXPECT_NE(std::ranges::find(left_out, "dualpipe"), left_out.end());
  EXPECT_EQ(std::ranges::find(left_out, "1f1b"), left_out.end());
  std::optional<Error> refused;
  const std::vector<PlanFamily> families = families_of(space, {1, 2, 1}, refused);
  EXPECT_FALSE(families.empty());
  for (const PlanFamily& family : families) {
    EXPECT_TRUE(std::ranges::any_of(
        all, [&](const Framework& framework) { return framework.launches(family.plan); }));
  }
  for (const char* said : {R"(, "schedule": "dualpipe")", R"(, "runtime": "rehearse")"}) {
    Space open = space_with(said);
    EXPECT_TRUE(keep_released(open, all).empty());
    EXPECT_TRUE(std::ranges::any_of(families_of(open, {1, 2, 1}, refused), [](const PlanFamily& f) {
      return f.plan.schedule == "dualpipe";
    }));
  }
}

TEST(Framework, IsPricedByItsProfileAndLaunchesAllThatIsListed) {
  Space space = space_of(scenario_of(model_text({}), "clusters/dgx-a100-80gb.json", 8, kPlan));
  const Framework torchtitan = named("torchtitan");
  ASSERT_TRUE(use_framework(space, torchtitan));
  const SearchResult result =
      search(space, cluster_of(space), {.top = 20, .explain = false}).value();
  ASSERT_FALSE(result.best.empty());
  for (const FoundPlan& plan : result.best) {
    EXPECT_TRUE(torchtitan.launches(plan.plan));
    EXPECT_EQ(plan.plan.runtime.name, "torchtitan");
  }
}

}  // namespace
}  // namespace rehearse::sim
