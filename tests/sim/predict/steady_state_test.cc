// SPDX-License-Identifier: Apache-2.0
// A long step predicted from a shorter one has the report of the whole one, byte for byte, but for
// what `simulation` says of how it was made (docs/steady_state.md): over random plans of every
// schedule. STEADY_PLANS=25 in the environment takes so many plans of each; bench/steady.sh does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "schedules/base/json_document.h"
#include "schedules/order/registry.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_shape.h"
#include "sim/memory/replay/memory_steady.h"
#include "sim/predict/left_out.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"
#include "tests/random_scenario.h"

namespace rehearse::sim {
namespace {

struct Compared {
  std::int32_t plans = 0, left_out = 0;
  std::map<std::string, std::int32_t> whole;  // why nothing was left out: how often
};

// The report without what may differ.
std::string rest_of(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  Json json = Json::parse(report_json(p, scenario, cluster));
  json["simulation"] = nullptr;
  return json.dump(2);
}

// Whether the order may have a middle that repeats itself: not where it is searched for, nor where
// all forwards are before all backwards.
bool may_repeat(const ScheduleInfo& info) {
  return !info.planned && info.name != "gpipe" && info.name != "looped_bfs";
}

// Micro-batches of it; 0: it is none that is found.
std::int64_t found_repetition(const ScheduleInfo& info, std::int32_t p) {
  const Result<ScheduleShape> shape =
      resolve_shape(info, {.positions = p, .microbatches = std::max(200 * p, 2000)});
  return info.growing != nullptr && shape ? growing_of(info, shape.value()).repeated : 0;
}

// As many micro-batches as make a shorter step worth a try, and a few more.
std::string with_many_microbatches(std::string_view name, ScenarioText& text, const Plan& plan,
                                   Chance& chance) {
  const ScheduleInfo* info = find_schedule(name);
  const std::int64_t p = plan.pipeline_parallel,
                     n = std::max({p, std::int64_t{plan.microbatch_group_size},
                                   (found_repetition(*info, plan.pipeline_parallel) + 1) / 2});
  std::int64_t m = 4 * (6 * p + 6 * 2 * n + 56) + chance.below(4 * p);
  if (chance.percent(30)) m *= 4;  // so that several lengths are worth a try
  if (!may_repeat(*info)) m = 2 * p + chance.below(20);
  m += (p - m % p) % p;
  m += m % 2 * p;
  text.plan["global_batch"] = std::to_string(m * plan.data_parallel * plan.micro_batch);
  return text.text();
}

void compare(std::string_view name, ScenarioText& text, Chance& chance, const Plan& drawn,
             std::map<std::string, Compared>& all) {
  const std::string json = with_many_microbatches(name, text, drawn, chance);
  const Result<Scenario> scenario = text.read();
  if (!scenario || scenario.value().plan.microbatches() < 2) return;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  ASSERT_TRUE(cluster) << cluster.error().message;
  const Result<Prediction> whole = predict(scenario.value(), cluster.value());
  const Result<Prediction> shorter =
      predict(scenario.value(), cluster.value(), {.leave_out = true});
  ASSERT_EQ(static_cast<bool>(whole), static_cast<bool>(shorter)) << json;
  if (!whole) return;
  Compared& of = all[std::string(name)];
  ++of.plans;
  const Omitted& omitted = shorter.value().left_out;
  if (omitted.times > 0) {
    ++of.left_out;
    EXPECT_EQ(whole.value().schedule.num_ops(), shorter.value().schedule.num_ops() + omitted.ops());
  } else {
    ++of.whole[omitted.whole_because];
  }
  const std::string expected = rest_of(whole.value(), scenario.value(), cluster.value());
  const std::string made = rest_of(shorter.value(), scenario.value(), cluster.value());
  const auto differ = std::ranges::mismatch(expected, made);
  ASSERT_TRUE(expected == made) << json << "\n"
                                << std::string(differ.in1,
                                               std::min(expected.end(), differ.in1 + 400))
                                << "\n--- and\n"
                                << std::string(differ.in2, std::min(made.end(), differ.in2 + 400));
}

TEST(SteadyState, HasTheReportOfTheWholeStep) {
  const char* const asked = std::getenv("STEADY_PLANS");
  const std::int32_t plans = asked != nullptr ? std::atoi(asked) : 3;
  std::map<std::string, Compared> all;
  Chance chance(20261126);
  for (std::uint64_t seed = 1; seed < 400 * static_cast<std::uint64_t>(plans); ++seed) {
    RandomScenario drawn =
        random_scenario(seed, {.most_gpus = 64, .open = false, .own_executor = chance.percent(5)});
    const Plan& plan = drawn.scenario.plan;
    const ScheduleInfo& info = *find_schedule(name_of_order(plan));
    const std::string name(info.name);
    // Drawn on until one of a schedule whose long steps may be of shorter ones is.
    const bool seen = all[name].left_out > 0 || !may_repeat(info);
    if (all[name].plans >= plans && (seen || all[name].plans >= 4 * plans)) continue;
    drawn.text.variation.clear();
    if (chance.percent(90)) drawn.text.plan.erase("offload");
    compare(name, drawn.text, chance, plan, all);
    if (HasFatalFailure()) return;
  }
  for (const ScheduleInfo& info : schedule_table()) {  // those that no draw has, in place of others
    if (!info.planned && !info.asked_only) continue;
    const Compared& of = all[std::string(info.name)];
    const auto enough = [&] {
      return of.plans >= plans && (of.left_out > 0 || !may_repeat(info) || of.plans >= 4 * plans);
    };
    for (std::uint64_t seed = 1; !enough(); ++seed) {
      ASSERT_LT(seed, 100 * static_cast<std::uint64_t>(plans)) << info.name;
      RandomScenario drawn =
          random_scenario(seed, {.most_gpus = 32, .open = false, .own_executor = false});
      if (drawn.scenario.plan.pipeline_parallel == 1) continue;
      drawn.text.variation.clear();
      if (chance.percent(90)) drawn.text.plan.erase("offload");
      for (const char* key :
           {"virtual_stages", "stage_layers", "sequence_slices", "extra_warmup",
            "microbatch_group_size", "overlap.expert_parallel", "chimera_scaling"}) {
        drawn.text.plan.erase(key);
      }
      drawn.text.plan["schedule"] = json_quoted(info.name);
      compare(info.name, drawn.text, chance, drawn.scenario.plan, all);
      if (HasFatalFailure()) return;
    }
  }
  std::int32_t total = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    const Compared& of = all[std::string(info.name)];
    total += of.plans;
    std::string why;
    for (const auto& [reason, count] : of.whole)
      why += "; " + std::to_string(count) + ": " + reason;
    std::printf("%-18s %3d plans, %3d from shorter steps%s\n", std::string(info.name).c_str(),
                of.plans, of.left_out, why.c_str());
    EXPECT_GE(of.plans, plans) << info.name;
    EXPECT_TRUE(of.left_out > 0 || !may_repeat(info)) << info.name;
  }
  std::printf("%d plans in all\n", total);
}

// Of every order that is known to grow, over half of every row at least: where directions meet,
// where an op does two things at once, where the first period that looks like one is none.
TEST(SteadyState, OfMemoryIsFoundInEveryRow) {
  std::int32_t rows = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    for (const std::int32_t p : {2, 4, 8}) {
      const Result<ScheduleShape> shape =
          resolve_shape(info, {.positions = p, .microbatches = 30 * p});
      if (!shape || !may_repeat(info)) continue;
      if (growing_of(info, shape.value()).repeated == 0) continue;
      const Result<Schedule> order = generate(info.name, shape.value());
      ASSERT_TRUE(order);
      for (RankClass row{0}; row.value < order.value().num_rows(); ++row.value, ++rows) {
        const SteadyPhase phase = steady_phase(order.value(), row);
        EXPECT_GE(2 * (phase.end - phase.begin), order.value().program(row).size())
            << order.value().name << ", row " << row.value;
      }
    }
  }
  EXPECT_GE(rows, 100);
}

// Where every replay runs out of memory before anything could be left out, a longer one does too.
TEST(SteadyState, TellsMemoryThatDoesNotFit) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": "phi-4", "cluster": "l4-8", "plan": {"pipeline_parallel": 8, "virtual_stages": 4,
          "data_parallel": 4, "global_batch": 8000, "schedule": "interleaved_zb1p",
          "sequence_length": 1024, "runtime": "fsdp", "zero_stage": 2,
          "precision": {"parameters": 2, "optimizer": 8, "compute": "fp16"}}})",
      "here", 1, {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  ASSERT_TRUE(cluster) << cluster.error().message;
  const Result<Prediction> p = predict(scenario.value(), cluster.value(), {.leave_out = true});
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_TRUE(p.value().memory.left_out);
  EXPECT_GT(p.value().memory.peak_device, cluster.value().capacity().value);
  EXPECT_GT(p.value().left_out.times, 0);
}

}  // namespace
}  // namespace rehearse::sim
