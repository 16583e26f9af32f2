// SPDX-License-Identifier: Apache-2.0
// A search finds what simulating everything finds, says why, and says it the same way each time.
#include "sim/search/search.h"
#include "schedules/scenario/plan_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "schedules/passes/planned/plan_order.h"
#include "sim/search/balanced_stages.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_live.h"
#include "sim/search/report/saved_plan.h"
#include "sim/search/report/search_report.h"
#include "tests/sim/search/search_fixture.h"

namespace rehearse::sim {
namespace {

// REHEARSE_TRIALS=100000: the long form of the random tests.
std::int32_t trials(std::int32_t usual) {
  const char* asked = std::getenv("REHEARSE_TRIALS");
  return asked == nullptr ? usual : std::atoi(asked);
}

template <class T>
T pick(std::mt19937& random, std::initializer_list<T> from) {
  return *(from.begin() + random() % from.size());
}

// A space of dozens to a few hundred plans on 2 to 16 GPUs, memory sometimes scarce.
struct RandomSpace {
  Space space;
  Cluster cluster;
};
RandomSpace random_space(std::mt19937& random) {
  const SmallModel model{.layers = pick(random, {4, 6}),
                         .hidden = pick(random, {512, 1024, 2048}),
                         .heads = 8,
                         .vocabulary = pick(random, {1024, 8192}),
                         .sequence = pick(random, {256, 512, 1024})};
  const int gpus = pick(random, {2, 4, 8, 8, 16});
  const std::string schedules =
      pick<std::string>(random, {R"(["1f1b", "interleaved_1f1b"])", R"(["1f1b", "zb_h1", "gpipe"])",
                                 R"(["interleaved_1f1b", "zb_v", "looped_bfs"])"});
  const std::string plan = R"({"global_batch": )" + std::to_string(gpus * pick(random, {2, 4})) +
                           R"(, "schedule": )" + schedules + R"(, "zero_stage": )" +
                           pick<std::string>(random, {"[0, 1]", "[1, 3]", "[0, 3]"}) +
                           R"(, "recompute": )" +
                           pick<std::string>(random, {R"("none")", R"(["none", "full"])"}) +
                           R"(, "context_parallel": 1, "sequence_parallel": true,
                              "micro_batch": [1, 4]})";
  RandomSpace made{space_of(scenario_of(
                       model_text(model),
                       pick<std::string>(random, {"dgx-a100-80gb", "dgx-h100", "pcie-a100-80gb-8"}),
                       gpus, plan)),
                   {}};
  made.cluster = cluster_of(made.space);
  // Some GPUs hold only part of it: the context alone takes half a gigabyte.
  if (random() % 2 == 0) made.cluster.gpu.memory_capacity_gb = pick(random, {2.0, 2.5, 3.0, 4.0});
  made.cluster.gpu.usable_memory_gib.reset();
  return made;
}

TEST(Search, FindsWhatSimulatingEveryPlanFinds) {
  std::mt19937 random(7);
  std::int32_t equal = 0, spaces = 0, nothing = 0;
  double worst = 0;
  std::int64_t plans = 0, simulated = 0;
  while (spaces < 56) {
    const RandomSpace made = random_space(random);
    double best = 0;
    for (const Plan& plan : all_plans(made.space)) {
      const Result<Prediction> prediction = predict(with_plan(made.space, plan), made.cluster);
      if (!prediction || !prediction.value().memory.fits) continue;
      if (best == 0 || prediction.value().step_s < best) best = prediction.value().step_s;
    }
    const Result<SearchResult> result =
        search(made.space, made.cluster, {.top = 1, .explain = false});
    ASSERT_TRUE(result) << result.error().message;
    plans += result.value().plans;
    simulated += result.value().confirmed;
    if (best == 0) {
      EXPECT_TRUE(result.value().best.empty());
      ++nothing;
      continue;
    }
    ++spaces;
    ASSERT_FALSE(result.value().best.empty()) << "the search refused everything";
    const double slower = result.value().best.front().step_s / best - 1;
    worst = std::max(worst, slower);
    equal += slower == 0 ? 1 : 0;
    EXPECT_LE(slower, 0.01);
  }
  std::printf(
      "%d of %d equal, worst %.3f %% slower; %ld plans, %ld simulated; in %d nothing fits\n", equal,
      spaces, 100 * worst, static_cast<long>(plans), static_cast<long>(simulated), nothing);
  EXPECT_GE(equal, (spaces * 95 + 99) / 100);
}

// Both bounds are below the replayed peak on every plan.
TEST(Search, NeverRefusesAPlanThatFits) {
  std::mt19937 random(11);
  std::int32_t done = 0;
  double tightest = 1, sum = 0;
  const std::int32_t wanted = trials(3000);
  while (done < wanted) {
    const RandomSpace made = random_space(random);
    const Result<SearchSetup> setup = search_setup(made.space, made.cluster);
    ASSERT_TRUE(setup);
    LiveBounds live;
    std::vector<Plan> plans = all_plans(made.space);
    std::ranges::shuffle(plans, random);
    if (plans.size() > 60) plans.resize(60);
    for (Plan& plan : plans) {
      const MemoryProfile& profile = setup.value().tables.profile(plan);
      const Result<Schedule> order = order_of(made.space.base.model, plan);
      if (!order) continue;
      const MemoryReport memory =
          predict_memory(profile, {made.space.base.model, plan}, made.cluster, order.value());
      const std::int64_t outside = memory.ranks[0].peak_device - memory.ranks[0].peak_reserved;
      const std::int64_t quick =
          memory_lower_bound(profile, {made.space.base.model, plan}) + outside;
      const std::int64_t counted = live.lower_bound(setup.value(), plan, made.cluster);
      EXPECT_GE(counted, quick);
      ASSERT_LE(counted, memory.peak_allocated + outside) << plan_json(plan, 0);
      const double share =
          static_cast<double>(counted - outside) / static_cast<double>(memory.peak_allocated);
      tightest = std::min(tightest, share);
      sum += share;
      ++done;
    }
  }
  std::printf("%d plans: the bound is %.0f %% of the peak on average, %.0f %% at least\n", done,
              100 * sum / done, 100 * tightest);
}

// Gradients are reduced beside the backward, as every data-parallel framework does by default.
TEST(Search, RecommendsReplicasWhereEverythingFitsOnEachGpu) {
  const Space space = space_of(scenario_of("\"gpt2-124m\"", "dgx-a100-80gb", 8,
                                           R"({"global_batch": 64, "zero_stage": [0, 1],
                                               "overlap": {"gradient_reduce": true}})"));
  const SearchResult result = search(space, cluster_of(space), {}).value();
  EXPECT_EQ(result.situation->situation, Situation::EverythingFits);
  ASSERT_FALSE(result.best.empty());
  const Plan& best = result.best.front().plan;
  EXPECT_EQ(best.data_parallel, 8) << plan_line(best);
}

TEST(Search, RecommendsZeroOrAPipelineWhereTheTrainingStateDoesNotFit) {
  const Space space = space_of(scenario_of("\"llama2-7b\"", "dgx-a100-80gb", 8,
                                           R"({"global_batch": 32, "sequence_length": 2048})"));
  const SearchResult result = search(space, cluster_of(space), {}).value();
  EXPECT_EQ(result.situation->situation, Situation::StateTooLarge);
  EXPECT_TRUE(result.situation->weights_fit);
  ASSERT_FALSE(result.best.empty());
  const Plan& best = result.best.front().plan;
  EXPECT_EQ(best.tensor_parallel, 1) << plan_line(best);
  EXPECT_TRUE(best.zero_stage > 0 || best.pipeline_parallel > 1) << plan_line(best);
}

// Two layers of 12 h^2 = 12.9e9 parameters: 232 GB of training state each.
TEST(Search, RecommendsTensorParallelismInTheNodeWhereNotEvenALayerFits) {
  const Space space = space_of(scenario_of(
      model_text(
          {.layers = 2, .hidden = 32768, .heads = 256, .vocabulary = 8192, .sequence = 2048}),
      "dgx-a100-80gb", 16, R"({"global_batch": 32, "zero_stage": [0, 1, 2]})"));
  const Cluster cluster = cluster_of(space);
  const SearchResult result = search(space, cluster, {}).value();
  EXPECT_EQ(result.situation->situation, Situation::LayerTooLarge);
  ASSERT_FALSE(result.best.empty());
  const Plan& best = result.best.front().plan;
  EXPECT_GT(best.tensor_parallel, 1) << plan_line(best);
  EXPECT_LE(best.tensor_parallel, cluster.gpus_per_node) << plan_line(best);
}

TEST(Search, ChoosesAMicroBatchThatIsNeverWorseThanAFixedOne) {
  std::mt19937 random(3);
  std::int32_t done = 0;
  while (done < 200) {
    const RandomSpace made = random_space(random);
    std::optional<Error> refused;
    for (const MeshSize& mesh : meshes(made.space)) {
      const std::vector<PlanFamily> families = families_of(made.space, mesh, refused);
      if (families.empty()) continue;
      const Plan& family = families[random() % families.size()].plan;
      double best = 0;
      bool fits = false;
      for (const std::int32_t b : micro_batch_candidates(family)) {
        const Result<Plan> plan = plan_of(family, b, family.recompute);
        if (!plan) continue;
        const Result<Prediction> made_one =
            predict(with_plan(made.space, plan.value()), made.cluster);
        if (!made_one || !made_one.value().memory.fits) continue;
        best = fits ? std::min(best, made_one.value().step_s) : made_one.value().step_s;
        fits = true;
      }
      const Result<Prediction> chosen = predict(with_plan(made.space, family), made.cluster);
      if (!chosen) continue;
      EXPECT_EQ(chosen.value().memory.fits, fits) << plan_json(family, 0);
      if (fits) {
        EXPECT_LE(chosen.value().step_s, best) << plan_json(family, 0);
      }
      ++done;
    }
  }
}

std::string json_of(const Space& space, const Cluster& cluster, std::int32_t threads) {
  SearchReport report{.name = "small"};
  report.cases.push_back(
      {.cluster = cluster.name,
       .gpus = 8,
       .result = search(space, cluster, {.top = 5, .threads = threads}).value()});
  return search_json(report, space) + search_text(report) + search_csv(report);
}

TEST(Search, SaysTheSameWithOneThreadAndWithTwo) {
  const Space space =
      space_of(scenario_of(model_text({}), "dgx-a100-80gb", 8, R"({"global_batch": 32})"));
  const Cluster cluster = cluster_of(space);
  EXPECT_EQ(json_of(space, cluster, 1), json_of(space, cluster, 2));
}

// Keys without effect are left out, so that the plan read back may differ in them, and is saved as
// the same text.
TEST(Search, SavesPlansThatArePredictedIdentically) {
  std::mt19937 random(5);
  for (std::int32_t i = 0; i < 12; ++i) {
    const RandomSpace made = random_space(random);
    const Cluster cluster = cluster_of(made.space);  // as the saved file names it
    const SearchResult result = search(made.space, cluster, {.top = 4, .explain = false}).value();
    ASSERT_FALSE(result.best.empty());
    for (const FoundPlan& found : result.best) {
      const std::string text = scenario_text(made.space, found, "saved");
      const Result<Scenario> again = parse_scenario(text, "saved.json", 1, {});
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_TRUE(again.value().warnings.empty()) << again.value().warnings.front();
      EXPECT_EQ(scenario_text(made.space, {.plan = again.value().plan}, "saved"), text);
      const Result<Prediction> prediction =
          predict(again.value(), read_cluster(again.value().cluster).value());
      ASSERT_TRUE(prediction);
      EXPECT_EQ(prediction.value().step_s, found.step_s);
      EXPECT_EQ(prediction.value().memory.peak_device, found.peak_device);
    }
  }
}

TEST(Search, ListsFastestFirstAndTheFrontByMemory) {
  const Space space = space_of(
      scenario_of(model_text({.hidden = 2048}), "dgx-a100-80gb", 8, R"({"global_batch": 32})"));
  const SearchResult result = search(space, cluster_of(space), {}).value();
  for (std::size_t i = 1; i < result.best.size(); ++i) {
    EXPECT_LE(result.best[i - 1].step_s, result.best[i].step_s);
  }
  ASSERT_FALSE(result.front.empty());
  for (std::size_t i = 1; i < result.front.size(); ++i) {
    EXPECT_LT(result.front[i - 1].peak_device, result.front[i].peak_device);
    EXPECT_GT(result.front[i - 1].step_s, result.front[i].step_s);
  }
  EXPECT_EQ(result.front.back().step_s, result.best.front().step_s);
  EXPECT_EQ(result.sensitivities.size(), 5U);
  for (const Sensitivity& one : result.sensitivities) {
    EXPECT_LE(one.step_s, result.best.front().step_s * 1.001) << one.what;
  }
}

// A short list ends the confirming early: not before the best is in it.
TEST(Search, FindsTheSameBestForAnyLengthOfTheList) {
  std::mt19937 random(13);
  for (std::int32_t i = 0; i < 24; ++i) {
    const RandomSpace made = random_space(random);
    const auto best = [&](std::int32_t top) {
      const SearchResult found =
          search(made.space, made.cluster, {.top = top, .explain = false}).value();
      return found.best.empty() ? 0.0 : found.best.front().step_s;
    };
    EXPECT_EQ(best(1), best(30));
  }
}

TEST(Search, StopsWithWhatItHas) {
  const Space space =
      space_of(scenario_of(model_text({}), "dgx-a100-80gb", 8, R"({"global_batch": 32})"));
  std::atomic<bool> stop{false};
  SearchOptions options{.stop = &stop};
  options.progress = [&](const SearchProgress& progress) {
    if (progress.confirmed > 0) stop = true;
  };
  const SearchResult result = search(space, cluster_of(space), options).value();
  EXPECT_TRUE(result.interrupted);
  EXPECT_FALSE(result.best.empty());
}

// Against every way of dealing up to 7 layers to up to 4 stages: none has a shorter busiest stage,
// and of those that are as short none has a smaller sum of squares.
TEST(BalancedStages, AreTheBestOfAllWays) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t l = 1 + random() % 7;
    const std::int32_t k = 2 + static_cast<std::int32_t>(random() % 3);
    std::vector<double> layers(l);
    for (double& layer : layers) layer = 1.0 + static_cast<double>(random() % 9);
    const double first = static_cast<double>(random() % 3),
                 last = static_cast<double>(random() % 12);
    const auto cost = [&](const std::vector<std::int32_t>& shares) {
      std::pair<double, double> sum{0, 0};
      std::size_t at = 0;
      for (std::size_t s = 0; s < shares.size(); ++s) {
        const bool outer = s == 0 || s + 1 == shares.size();
        if (shares[s] == 0 && !outer) return std::pair(1e9, 1e9);
        double time = (s == 0 ? first : 0) + (s + 1 == shares.size() ? last : 0);
        for (std::int32_t i = 0; i < shares[s]; ++i) time += layers[at++];
        sum = {std::max(sum.first, time), sum.second + time * time};
      }
      return sum;
    };
    std::pair<double, double> best{1e9, 1e9};
    std::vector<std::int32_t> shares(static_cast<std::size_t>(k), 0);
    const auto all = [&](auto self, std::size_t stage, std::int32_t left) -> void {
      if (stage + 1 == shares.size()) {
        shares[stage] = left;
        best = std::min(best, cost(shares));
        return;
      }
      for (shares[stage] = 0; shares[stage] <= left; ++shares[stage]) {
        self(self, stage + 1, left - shares[stage]);
      }
    };
    all(all, 0, static_cast<std::int32_t>(l));
    const std::vector<std::int32_t> dealt = deal_layers(layers, first, last, k);
    if (best.first == 1e9) {
      EXPECT_TRUE(dealt.empty());
      continue;
    }
    ASSERT_EQ(dealt.size(), static_cast<std::size_t>(k));
    EXPECT_EQ(cost(dealt), best) << l << " layers, " << k << " stages";
  }
}

// Mamba, attention and experts take unlike times: 13 layers on each of four stages are not as much
// work. With the layers given nothing is dealt out.
TEST(BalancedStages, AreAmongThePlansOfASearch) {
  const auto found = [](const std::string& more) {
    const Space space = space_of(R"({"model": "models/nemotron-3-nano.json",
        "cluster": "clusters/dgx-h100.json", "gpus": 8, "plan": {"tensor_parallel": 1,
        "pipeline_parallel": 4, "expert_parallel": 2, "global_batch": 32, "sequence_length": 4096,
        "schedule": "1f1b", "zero_stage": 1, "micro_batch": 1, "recompute": "full",
        "precision": "bf16", "runtime": "megatron")" +
                                 more + "}}");
    const Result<SearchResult> result = search(space, cluster_of(space), {.explain = false});
    EXPECT_TRUE(result);
    return result ? result.value().best : std::vector<FoundPlan>{};
  };
  const std::vector<FoundPlan> open = found("");
  const std::vector<FoundPlan> even = found(R"(, "stage_layers": [13, 13, 13, 13])");
  ASSERT_FALSE(open.empty());
  ASSERT_FALSE(even.empty());
  EXPECT_NE(open.front().plan.stage_layers, even.front().plan.stage_layers);
  EXPECT_LT(open.front().step_s, even.front().step_s);
  for (const FoundPlan& plan : even)
    EXPECT_EQ(plan.plan.stage_layers, even.front().plan.stage_layers);
}

}  // namespace
}  // namespace rehearse::sim
