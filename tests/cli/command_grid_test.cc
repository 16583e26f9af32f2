// SPDX-License-Identifier: Apache-2.0
// One plan, asked of every command: whether it fits, how long its step is, and in which words, by
// simulate, by a search of a space with this plan alone, and by plan; over random scenarios of
// every key. Some are asked of the program itself. REHEARSE_TEST_LONG=1: a thousand.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/plan/plan_answer.h"
#include "schedules/base/json_reader.h"
#include "schedules/body/body.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/keys/plan_values.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_line.h"
#include "schedules/scenario/plan_names.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"
#include "sim/search/estimate/search_estimate.h"
#include "sim/search/estimate/search_live.h"
#include "sim/search/report/search_report.h"
#include "tests/random_scenario.h"

namespace rehearse::sim {
namespace {

std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

// The scenario with every key that a search would try values of, as the plan has it.
ScenarioText with_one_plan(const RandomScenario& of, const Plan& plan) {
  ScenarioText text = of.text;
  std::map<std::string, std::string>& to = text.plan;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"tensor_parallel", plan.tensor_parallel},
      {"pipeline_parallel", plan.pipeline_parallel},
      {"context_parallel", plan.context_parallel},
      {"data_parallel", plan.data_parallel},
      {"zero_stage", plan.zero_stage},
      {"micro_batch", plan.micro_batch},
      {"global_batch", plan.global_batch},
      {"sequence_length", plan.sequence_length}};
  for (const auto& [key, value] : sizes) to[key] = text_of(value);
  to["schedule"] = json_quoted(plan.schedule);
  const ScheduleInfo* info = find_schedule(plan.schedule);
  if (info->chunks == ChunkRule::Many && plan.pipeline_parallel > 1) {
    to["virtual_stages"] = text_of(plan.virtual_stages);
  }
  to["sequence_parallel"] = json_bool(plan.sequence_parallel);
  to["recompute"] = recompute_json(plan);
  if (plan.context_parallel > 1) {
    to["context_parallel_algorithm"] = json_quoted(name_of(plan.context_parallel_algorithm));
  }
  // Layers that differ a search deals out by their time, unless the plan deals them.
  const bool differ = layers_by_class({of.scenario.model, plan}).size() > 1;
  if (plan.recompute_layers > 0 || (differ && plan.pipeline_parallel > 1)) {
    to["stage_layers"] = plan_values::stage_layers(plan);
  }
  to.erase("chimera_scaling");  // the schedule's name says it
  if (of.scenario.model.experts.count > 0) {
    to["expert_parallel"] = text_of(plan.expert_parallel);
    to["expert_tensor_parallel"] = text_of(plan.expert_tensor_parallel);
    to["expert_dispatch"] = json_quoted(name_of(plan.expert_dispatch));
  }
  return text;
}

std::string line_of(const std::string& text, const std::string& head) {
  const std::size_t at = text.find("\n" + head);
  if (at == std::string::npos) return "";
  const std::size_t from = at + 1 + head.size();
  return text.substr(from, text.find('\n', from) - from);
}

// --- the grid

enum class Ask { Plans, Fits, Verdict, Step, Peak, Words, Csv, Bound, Candidate, Answer };
constexpr std::string_view kAsks[] = {"plans", "fits", "verdict", "step",      "peak",
                                      "words", "csv",  "bound",   "candidate", "answer"};

std::int64_t asked(const char* name, std::int64_t usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : std::atoll(value);
}

class Grid {
 public:
  void ask(const RandomScenario& of, std::uint64_t seed) {
    seed_ = seed;
    text_ = of.text.text();
    const Result<Prediction> made = predict(of.scenario, of.cluster);
    ASSERT_TRUE(made) << made.error().message << '\n' << text_;
    const Prediction& p = made.value();
    const ScenarioText one = with_one_plan(of, p.plan);
    const Result<Space> space = parse_space(one.text(), "random.json", {});
    ASSERT_TRUE(space) << space.error().message << '\n' << one.text();
    bounds(space.value(), of, p);
    const Result<SearchResult> found =
        search(space.value(), of.cluster, {.explain = false, .headroom = 0});
    ASSERT_TRUE(found) << found.error().message << '\n' << one.text();
    const SearchResult& result = found.value();
    expect(Ask::Plans, result.plans == 1, text_of(result.plans) + " plans");
    expect(Ask::Fits, p.memory.fits == !result.best.empty(),
           std::string("simulate: ") + json_bool(p.memory.fits));
    if (result.best.empty()) return;
    const FoundPlan& best = result.best.front();
    expect(Ask::Verdict,
           best.verdict == p.memory.verdict() && best.bad_day == p.memory.bad_day.cause,
           std::string(name_of(p.memory.verdict())) + " and " + std::string(name_of(best.verdict)));
    const Result<SearchResult> surviving =
        search(space.value(), of.cluster, {.explain = false, .headroom = 0, .survive = true});
    ASSERT_TRUE(surviving);
    expect(Ask::Verdict, surviving.value().best.empty() == (p.memory.verdict() != Verdict::Yes),
           std::string(name_of(p.memory.verdict())) + ", of plans that survive");
    expect(Ask::Step, best.step_s == p.step_s,
           std::to_string(p.step_s) + " and " + std::to_string(best.step_s));
    expect(Ask::Peak, best.peak_device == p.memory.peak_device,
           text_of(p.memory.peak_device) + " and " + text_of(best.peak_device));
    Plan said = best.plan, simulated = p.plan;
    if (p.plan.pipeline_parallel == 1) said.schedule = simulated.schedule = "none";
    expect(Ask::Words, plan_json(said, -1) == plan_json(simulated, -1),
           plan_json(simulated, -1) + "\n" + plan_json(said, -1));
    expect(Ask::Words, plan_line(said) == plan_line(simulated),
           plan_line(simulated) + "\n" + plan_line(said));
    const std::string report = report_text(p, of.scenario, of.cluster);
    expect(Ask::Words, report.find("\n  " + plan_line(p.plan) + "; ") != std::string::npos,
           plan_line(p.plan) + "\n" + report);
    csv(of, result);
    answer(of, result);
  }

  void print() const {
    for (std::size_t i = 0; i < std::size(kAsks); ++i) {
      std::printf("%-10s asked %4d, against %d\n", std::string(kAsks[i]).c_str(), asked_[i],
                  against_[i]);
    }
  }

 private:
  void expect(Ask ask, bool holds, const std::string& what) {
    ++asked_[static_cast<std::size_t>(ask)];
    if (holds) return;
    ++against_[static_cast<std::size_t>(ask)];
    ADD_FAILURE() << kAsks[static_cast<std::size_t>(ask)] << ", seed " << seed_ << ": " << what
                  << '\n'
                  << text_;
  }

  // What a search leaves out by, before any replay, is never more than the replay's peak.
  void bounds(const Space& space, const RandomScenario& of, const Prediction& p) {
    const Result<SearchSetup> setup = search_setup(space, of.cluster);
    ASSERT_TRUE(setup) << setup.error().message << '\n' << text_;
    PipelineTimes times;
    LiveBounds live;
    const std::int64_t counted = live.lower_bound(setup.value(), p.plan, of.cluster);
    expect(Ask::Bound, counted <= p.memory.peak_device,
           "of the order " + text_of(counted) + " above " + text_of(p.memory.peak_device));
    for (const MeshSize& size : meshes(space)) {
      const MeshCandidates mesh = estimate_mesh(setup.value(), size, times, 1);
      for (const auto* list : {&mesh.fitting, &mesh.refused}) {
        for (const Candidate& one : *list) {
          expect(Ask::Bound, one.bound <= p.memory.peak_device,
                 text_of(one.bound) + " above " + text_of(p.memory.peak_device));
        }
      }
      expect(Ask::Candidate, !p.memory.fits || mesh.fitting.size() == 1,
             "fits, and the estimate refuses it");
    }
  }

  void csv(const RandomScenario& of, const SearchResult& result) {
    SearchReport report;
    report.cases.push_back({.cluster = of.cluster.name, .gpus = result.gpus, .result = result});
    const std::string table = search_csv(report);
    const Plan& plan = result.best.front().plan;
    expect(Ask::Csv, table.find(recompute_text(plan)) != std::string::npos,
           recompute_text(plan) + " is not in\n" + table);
  }

  void answer(const RandomScenario& of, const SearchResult& result) {
    const FoundPlan& best = result.best.front();
    const Plan& plan = best.plan;
    const std::string text = cli::answer_text({.model = "a model",
                                               .cluster = of.cluster.name,
                                               .gpus = plan.gpus(),
                                               .gpus_per_node = of.cluster.gpus_per_node,
                                               .best = best,
                                               .fastest_s = best.step_s,
                                               .capacity = best.capacity,
                                               .considered = result.plans});
    expect(Ask::Words, line_of(text, "layout    ") == plan_line(plan),
           plan_line(plan) + "\n" + text);
    expect(
        Ask::Answer,
        text.find("\nfits      " + std::string(name_of(best.verdict)) + ": ") != std::string::npos,
        text);
    const bool nothing = recompute_text(plan) == "none";
    expect(Ask::Answer, (text.find("nothing is recomputed") != std::string::npos) == nothing,
           recompute_text(plan) + "\n" + text);
  }

  std::uint64_t seed_ = 0;
  std::string text_;
  std::array<std::int32_t, std::size(kAsks)> asked_{}, against_{};
};

TEST(CommandGrid, OnePlanHasOneVerdictOneStepAndOneName) {
  const bool all = std::getenv("REHEARSE_TEST_LONG") != nullptr;
  const std::int64_t wanted = asked("REHEARSE_SCENARIOS_DRAWN", all ? 1000 : 80);
  const std::int64_t first = asked("REHEARSE_FIRST_SEED", 0);
  Grid grid;
  for (std::int64_t seed = first; seed < first + wanted; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    grid.ask(random_scenario(number), number);
  }
  grid.print();
}

// --- the program itself

struct Said {
  std::int32_t code = -1;
  JsonValue document;
};
Said run(const std::string& arguments) {
  const std::string out =
      (std::filesystem::path(testing::TempDir()) / ("grid" + std::to_string(getpid()) + ".out"))
          .string();
  const std::string command =
      std::string(REHEARSE_COMMAND) + ' ' + arguments + " > " + out + " 2>/dev/null";
  const int status = std::system(command.c_str());
  Said said{.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  Result<JsonValue> read = read_json(out);
  if (read) said.document = std::move(read).value();
  std::filesystem::remove(out);
  return said;
}
// A member of members; null where there is none.
JsonValue at(const JsonValue& document, std::initializer_list<const char*> path) {
  const JsonValue* here = &document;
  for (const char* key : path) {
    if (here->is(JsonKind::Array) && !here->items.empty()) here = &here->items.front();
    const JsonMember* member = here->find(key);
    if (member == nullptr) return {};
    here = &member->value;
  }
  return here->is(JsonKind::Array) && !here->items.empty() ? here->items.front() : *here;
}
std::string quoted_for_shell(const std::string& text) {
  return "'" + text + "'";
}

TEST(CommandGrid, TheProgramSaysTheSame) {
  const std::int32_t wanted = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 40 : 6;
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / ("grid" + std::to_string(getpid()) + ".json"))
          .string();
  std::int32_t asked = 0, fitting = 0, compared = 0;
  // Until more than half of the scenarios wanted were plan's to answer, too.
  for (std::uint64_t seed = 5000; asked < wanted || (2 * compared <= wanted && asked < 4 * wanted);
       ++seed) {
    const RandomScenario of = random_scenario(seed, {.open = false});
    if (of.text.model.starts_with('{') || !of.text.variation.empty())
      continue;  // not plan's to say
    ++asked;
    const Plan& plan = of.scenario.plan;
    const ScenarioText one = with_one_plan(of, plan);
    std::ofstream(file) << one.text();
    const Result<Prediction> made = predict(of.scenario, of.cluster);
    ASSERT_TRUE(made) << made.error().message;
    const Prediction& p = made.value();
    fitting += p.memory.fits ? 1 : 0;

    const Said simulated = run("simulate " + file + " --json --require-fit");
    EXPECT_EQ(simulated.code, p.memory.fits ? 0 : 1) << one.text();
    EXPECT_EQ(at(simulated.document, {"memory", "fits"}).boolean, p.memory.fits) << one.text();
    EXPECT_EQ(at(simulated.document, {"memory", "verdict"}).text, name_of(p.memory.verdict()))
        << one.text();
    EXPECT_EQ(at(simulated.document, {"memory", "peak_device_bytes"}).integer, p.memory.peak_device)
        << one.text();
    EXPECT_EQ(at(simulated.document, {"step_time_s"}).number, p.step_s) << one.text();

    const Said searched = run("search " + file + " --json --headroom 0");
    EXPECT_EQ(searched.code, p.memory.fits ? 0 : 1) << one.text();
    if (p.memory.fits) {
      EXPECT_EQ(at(searched.document, {"cases", "best", "step_time_s"}).number, p.step_s)
          << one.text();
      EXPECT_EQ(at(searched.document, {"cases", "best", "verdict"}).text,
                name_of(p.memory.verdict()))
          << one.text();
      EXPECT_EQ(at(searched.document, {"cases", "best", "peak_device_bytes"}).integer,
                p.memory.peak_device)
          << one.text();
    }

    // plan keeps 5 % of the memory free, as search does by default, and to plans that hold on their
    // bad day.
    std::string sets;
    for (const auto& [key, value] : one.plan) {
      if (key == "runtime" || key == "sequence_length" || key == "global_batch") continue;
      sets += " --set " + quoted_for_shell("plan." + key + "=" + value);
    }
    const Said planned =
        run("plan " + quoted_for_shell(of.text.model.substr(1, of.text.model.size() - 2)) +
            " --on " + of.text.cluster + " --gpus " + text_of(plan.gpus()) + " --sequence-length " +
            text_of(plan.sequence_length) + " --global-batch " + text_of(plan.global_batch) +
            " --for " + plan.runtime.name + " --json" + sets);
    const bool fits =
        p.memory.verdict() == Verdict::Yes &&
        static_cast<double>(p.memory.peak_device) <= 0.95 * static_cast<double>(p.memory.capacity);
    if (planned.code == 2)
      continue;  // one may not be said without the file (a mesh that is derived)
    ++compared;
    EXPECT_EQ(planned.code, fits ? 0 : 1) << one.text();
    if (!fits) continue;
    EXPECT_EQ(at(planned.document, {"best", "step_time_s"}).number, p.step_s) << one.text();
    EXPECT_EQ(at(planned.document, {"best", "verdict"}).text, "yes") << one.text();
    EXPECT_EQ(at(planned.document, {"best", "peak_bytes"}).integer, p.memory.peak_device)
        << one.text();
  }
  std::filesystem::remove(file);
  EXPECT_GT(fitting, 0);
  EXPECT_GT(2 * compared, wanted);
}

}  // namespace
}  // namespace rehearse::sim
