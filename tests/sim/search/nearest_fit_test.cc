// SPDX-License-Identifier: Apache-2.0
// The plan that is named instead of one that does not fit: it fits, no plan with fewer changes
// does, and it is the same each time.
#include "sim/search/nearest_fit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/search/space/plan_changes.h"
#include "tests/sim/search/search_fixture.h"

namespace rehearse::sim {
namespace {

// 8 GPUs, one micro-batch of 8 samples a replica, nothing sharded, nothing recomputed.
struct Tight {
  explicit Tight(double gib, const std::string& changes = "") {
    text = scenario_of(model_text({.layers = 8, .hidden = 2048, .heads = 16, .sequence = 1024}),
                       "dgx-a100-80gb", 8,
                       R"({"tensor_parallel": 1, "data_parallel": 8, "micro_batch": 8,
                           "global_batch": 64, "schedule": "none", "zero_stage": 0)" +
                           changes + "}");
    scenario = parse_scenario(text, "tests/tight.json", 1, {}).value();
    cluster = read_cluster(scenario.cluster).value();
    cluster.gpu.usable_memory_gib = gib;
  }
  Prediction predicted(const Scenario& of) const { return predict(of, cluster).value(); }
  NearestPlan nearest() const {
    return nearest_fit(space_of(text), cluster, predicted(scenario).plan).value();
  }
  // As `--set plan.KEY=VALUE` of each change.
  Prediction with(const std::vector<PlanChange>& changes) const {
    ScenarioOptions options;
    for (const PlanChange& change : changes) {
      options.overrides.push_back("plan." + change.key + "=" + change.to);
    }
    return predicted(parse_scenario(text, "tests/tight.json", 1, options).value());
  }

  std::string text;
  Scenario scenario;
  Cluster cluster;
};

TEST(NearestFit, what_is_named_fits_as_its_flags_say) {
  for (const double gib : {4.0, 6.0, 8.0, 10.0}) {
    const Tight tight(gib);
    ASSERT_FALSE(tight.predicted(tight.scenario).memory.fits) << gib;
    const NearestPlan nearest = tight.nearest();
    ASSERT_TRUE(nearest.fits) << gib;
    const Prediction made = tight.with(nearest.changes);
    EXPECT_TRUE(made.memory.fits) << gib;
    EXPECT_EQ(made.memory.peak_device, nearest.peak_device) << gib;
    EXPECT_DOUBLE_EQ(made.step_s, nearest.step_s) << gib;
  }
}

// Every value of every single key is tried by hand: where more keys were changed, none of them
// fits, or its step is longer.
TEST(NearestFit, no_plan_with_one_change_is_better_where_more_are_named) {
  const std::vector<std::vector<PlanChange>> single{
      {{"recompute", "", "\"selective\""}},
      {{"recompute", "", "\"full\""}},
      {{"zero_stage", "", "1"}},
      {{"zero_stage", "", "2"}},
      {{"zero_stage", "", "3"}, {"runtime", "", "\"megatron\""}},
      {{"micro_batch", "", "4"}},
      {{"micro_batch", "", "2"}},
      {{"micro_batch", "", "1"}},
      {{"tensor_parallel", "", "2"}, {"data_parallel", "", "4"}},
      {{"tensor_parallel", "", "4"}, {"data_parallel", "", "2"}},
      {{"tensor_parallel", "", "8"}, {"data_parallel", "", "1"}},
      {{"pipeline_parallel", "", "2"}, {"data_parallel", "", "4"}, {"schedule", "", "\"1f1b\""}},
      {{"pipeline_parallel", "", "4"}, {"data_parallel", "", "2"}, {"schedule", "", "\"1f1b\""}},
      {{"pipeline_parallel", "", "8"}, {"data_parallel", "", "1"}, {"schedule", "", "\"1f1b\""}},
      {{"offload", "", "\"optimizer\""}},
      {{"offload", "", "\"activations\""}},
  };
  std::int32_t one = 0, more = 0;
  for (const double gib : {2.0, 2.5, 3.0, 4.0, 6.0, 10.0}) {
    const Tight tight(gib);
    const Plan from = tight.predicted(tight.scenario).plan;
    const NearestPlan nearest = tight.nearest();
    ASSERT_TRUE(nearest.fits);
    const std::int32_t changes = changed_keys(from, tight.with(nearest.changes).plan);
    (changes == 1 ? one : more) += 1;
    for (const std::vector<PlanChange>& change : single) {
      const Prediction made = tight.with(change);
      EXPECT_EQ(changed_keys(from, made.plan), 1);
      EXPECT_TRUE(changes == 1 || !made.memory.fits || made.step_s > nearest.step_s)
          << gib << " " << change.front().key;
    }
  }
  EXPECT_GT(one, 0);
  EXPECT_GT(more, 0);
}

TEST(NearestFit, where_nothing_fits_the_least_memory_is_named) {
  const Tight tight(0.6);  // less than a CUDA context and one communicator
  const NearestPlan nearest = tight.nearest();
  EXPECT_FALSE(nearest.fits);
  EXPECT_GT(nearest.tried, 0);
  EXPECT_GT(nearest.peak_device, tight.cluster.capacity().value);
  EXPECT_LT(nearest.peak_device, tight.predicted(tight.scenario).memory.peak_device);
  EXPECT_EQ(tight.with(nearest.changes).memory.peak_device, nearest.peak_device);
}

TEST(NearestFit, the_same_plan_gives_the_same_answer) {
  const Tight tight(5);
  const NearestPlan a = tight.nearest(), b = tight.nearest();
  ASSERT_EQ(a.changes.size(), b.changes.size());
  for (std::size_t i = 0; i < a.changes.size(); ++i) {
    EXPECT_EQ(a.changes[i].key, b.changes[i].key);
    EXPECT_EQ(a.changes[i].to, b.changes[i].to);
  }
  EXPECT_EQ(a.peak_device, b.peak_device);
}

void expect_equal(const NearestPlan& a, const NearestPlan& b) {
  EXPECT_EQ(a.fits, b.fits);
  ASSERT_EQ(a.changes.size(), b.changes.size());
  for (std::size_t i = 0; i < a.changes.size(); ++i) {
    EXPECT_EQ(a.changes[i].key, b.changes[i].key);
    EXPECT_EQ(a.changes[i].to, b.changes[i].to);
  }
  EXPECT_EQ(a.peak_device, b.peak_device);
  EXPECT_EQ(a.host, b.host);
  EXPECT_DOUBLE_EQ(a.step_s, b.step_s);
}

// The row that is fullest by its bound decides what all rows would.
TEST(NearestFit, replaying_every_row_of_every_plan_gives_the_same_answer) {
  for (const double gib : {0.6, 2.0, 4.0, 10.0}) {
    const Tight tight(gib);
    const Space space = space_of(tight.text);
    const Plan plan = tight.predicted(tight.scenario).plan;
    expect_equal(nearest_fit(space, tight.cluster, plan).value(),
                 nearest_fit(space, tight.cluster, plan, /*every_row=*/true).value());
  }
}

// The shipped scenarios that do not fit, or would not on smaller GPUs.
TEST(NearestFit, of_shipped_scenarios_it_is_what_every_row_would_give) {
  struct Shipped {
    std::string name;
    double gib;  // usable; 0: as it is
  };
  for (const Shipped& shipped : {Shipped{"embedding-whole", 0}, Shipped{"deepseek-v3-2048", 60},
                                 Shipped{"mixtral-8x7b-64", 30}, Shipped{"fsdp-64", 5}}) {
    const std::string path = "scenarios/" + shipped.name + ".json";
    const Scenario scenario = read_scenario(path, {}).value();
    Cluster cluster = read_cluster(scenario.cluster).value();
    if (shipped.gib > 0) cluster.gpu.usable_memory_gib = shipped.gib;
    const Space space = read_space(path, {.overrides = {"plan.schedule=null"}}).value();
    const Prediction made = predict(scenario, cluster, {.timeline = false}).value();
    ASSERT_FALSE(made.memory.fits) << shipped.name;
    expect_equal(nearest_fit(space, cluster, made.plan).value(),
                 nearest_fit(space, cluster, made.plan, /*every_row=*/true).value());
  }
}

// What the plan says beside the changed keys stays.
TEST(NearestFit, what_is_not_changed_stays_as_the_scenario_says) {
  const Tight tight(6, R"(, "dropout": 0.1, "attention_kernel": "flash1")");
  const NearestPlan nearest = tight.nearest();
  ASSERT_TRUE(nearest.fits);
  const Plan plan = tight.with(nearest.changes).plan;
  EXPECT_EQ(plan.dropout, 0.1);
  EXPECT_EQ(plan.attention_kernel, AttentionKernel::Flash1);
  EXPECT_EQ(plan.global_batch, 64);
  EXPECT_EQ(plan.gpus(), 8);
}

}  // namespace
}  // namespace rehearse::sim
