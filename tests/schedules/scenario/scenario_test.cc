// SPDX-License-Identifier: Apache-2.0
// Scenarios: where files are found, what overrides do, and that every measured case can be read.
#include "schedules/scenario/scenario.h"
#include "schedules/base/files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/scenario_keys.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

const std::string kGpt3 = "scenarios/gpt3-175b-1024.json";

Scenario read(const std::string& path, const ScenarioOptions& options = {}) {
  Result<Scenario> scenario = read_scenario(path, options);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario ? std::move(scenario).value() : Scenario{};
}

std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

TEST(Scenario, TheExampleOfTheContractSaysWhatItSays) {
  const Scenario s = read(kGpt3);
  EXPECT_EQ(s.name, "GPT-3 175B, 1,024 A100s, interleaved 1F1B");
  EXPECT_EQ(s.gpus, 1024);
  EXPECT_EQ(s.model.name, "gpt3-175b");
  EXPECT_EQ(s.model.hidden, 12288);
  EXPECT_EQ(s.cluster.gpus_per_node, 8);
  EXPECT_EQ(s.plan.microbatches(), 96);
  EXPECT_EQ(s.plan.stage_layers, std::vector<std::int32_t>(24, 4));
  EXPECT_EQ(s.plan.padded_vocabulary, 51200);
  EXPECT_EQ(s.plan.microbatch_group_size, 8);
  EXPECT_EQ(s.plan.attention_kernel, AttentionKernel::Unfused);
  EXPECT_EQ(s.plan.overlap_tensor_parallel, TensorOverlap::Off);
  EXPECT_EQ(s.train.steps, 20);
  EXPECT_EQ(s.train.seed, 1);
  EXPECT_EQ(s.train.learning_rate, 3e-4);
  EXPECT_EQ(s.train.weight_decay, 0.01);
}

// The first JSON of a page.
std::string example_of(const std::string& page) {
  const Result<std::string> text = read_text_file(page, 1 << 20);
  if (!text) return text.error().message;
  const std::string fence = "```json\n";
  const std::size_t begin = text.value().find(fence) + fence.size();
  return text.value().substr(begin, text.value().find("```", begin) - begin);
}

TEST(Scenario, TheExampleOfItsPageIsTheShippedOne) {
  const Result<Scenario> page =
      parse_scenario(example_of("docs/scenario.md"), "scenarios/page.json", 1, {});
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(page.value().plan, read(kGpt3).plan);
  EXPECT_EQ(page.value().model, read(kGpt3).model);
}

TEST(Scenario, EveryShippedOneIsRead) {
  const std::vector<std::string> paths = json_files("scenarios");
  EXPECT_GE(paths.size(), 20u);
  for (const std::string& path : paths) {
    const Scenario s = read(path);
    EXPECT_TRUE(s.warnings.empty()) << path;
    EXPECT_EQ(s.gpus, s.plan.gpus()) << path;
  }
}

TEST(ScenarioFiles, AreSoughtBesideTheFileThenAmongTheShipped) {
  const fs::path folder = fs::temp_directory_path() / "rehearse_scenario_test";
  fs::remove_all(folder);
  fs::create_directories(folder / "models");
  std::ofstream(folder / "models/gpt3-175b.json") << R"({"model_type": "gpt2", "n_layer": 3})";
  std::ofstream(folder / "s.json")
      << R"({"model": "models/gpt3-175b.json", "cluster": "clusters/dgx-h100.json"})";
  const Scenario s = read((folder / "s.json").string());
  EXPECT_EQ(s.model.layers, 3);  // the one beside it, not the shipped one
  EXPECT_TRUE(s.cluster.path.ends_with("clusters/dgx-h100.json"));
  fs::remove_all(folder);
}

TEST(ScenarioFiles, ShippedOnesAreKnownByTheirIds) {
  const Result<Scenario> s =
      parse_scenario(R"({"model": "gpt2-124m", "cluster": "dgx-h100"})", "nowhere/x.json", 1, {});
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s.value().model.hidden, 768);
  EXPECT_EQ(s.value().name, "x");
}

TEST(ScenarioFiles, ShippedOnesAreWhereTheEnvironmentSays) {
  setenv("REHEARSE_SCENARIOS", "/nowhere/at/all", 1);
  EXPECT_EQ(shipped_directory(), "/nowhere/at/all");
  EXPECT_FALSE(parse_scenario(R"({"model": "gpt2-124m", "cluster": "dgx-h100"})", "x.json", 1, {}));
  unsetenv("REHEARSE_SCENARIOS");
  EXPECT_TRUE(fs::is_directory(shipped_directory()));
}

TEST(ScenarioOverrides, ReachEveryKey) {
  const Scenario s = read(
      kGpt3,
      {.overrides = {"plan.micro_batch=2", "plan.overlap.gradient_reduce=false", "train.seed=7",
                     "name=mine", "plan.schedule=1F1B", "plan.virtual_stages=null"}});
  EXPECT_EQ(s.plan.micro_batch, 2);
  EXPECT_FALSE(s.plan.overlap_gradient_reduce);
  EXPECT_TRUE(s.plan.overlap_parameter_gather);
  EXPECT_EQ(s.train.seed, 7);
  EXPECT_EQ(s.name, "mine");
  EXPECT_EQ(s.plan.schedule, "1f1b");
}

TEST(ScenarioOverrides, TheLastOneWins) {
  EXPECT_EQ(read(kGpt3, {.overrides = {"train.seed=2", "train.seed=3"}}).train.seed, 3);
}

TEST(ScenarioOverrides, GoIntoTheFilesThatAreNamed) {
  const Scenario s = read(kGpt3, {.overrides = {"model.n_layer=48", "cluster.gpus_per_node=16"}});
  EXPECT_EQ(s.model.layers, 48);
  EXPECT_EQ(s.model.hidden, 12288);
  EXPECT_EQ(s.model.name, "gpt3-175b");
  EXPECT_EQ(s.cluster.gpus_per_node, 16);
  EXPECT_FALSE(s.cluster.inline_json.empty());
}

TEST(ScenarioOverrides, ClusterAndGpusOfTheCommandLineReplaceTheScenarios) {
  const Scenario s =
      read(kGpt3, {.overrides = {"plan.data_parallel=null"}, .cluster = "dgx-h100", .gpus = 2048});
  EXPECT_EQ(s.gpus, 2048);
  EXPECT_EQ(s.plan.data_parallel, 32);
  EXPECT_TRUE(s.cluster.path.ends_with("dgx-h100.json"));
  // A path of the command line is relative to where the user stands.
  const Scenario path = read(kGpt3, {.cluster = "scenarios/clusters/selene-a100-80gb.json"});
  EXPECT_EQ(path.cluster.path, "scenarios/clusters/selene-a100-80gb.json");
}

TEST(Scenario, AloneForAScheduleNeedsNeitherModelNorCluster) {
  const ScenarioOptions alone{.needs_model = false, .needs_cluster = false};
  const Result<Scenario> s = parse_scenario(
      R"({"plan": {"pipeline_parallel": 4, "virtual_stages": 2, "micro_batch": 1, "global_batch": 8}})",
      "x.json", 1, alone);
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s.value().plan.schedule, "interleaved_1f1b");
  EXPECT_EQ(s.value().plan.data_parallel, 1);
  EXPECT_EQ(s.value().plan.microbatches(), 8);
  EXPECT_EQ(s.value().model.layers, 0);
}

TEST(Scenario, OfAScheduleFileNamesItsPath) {
  const Result<Scenario> s = parse_scenario(
      R"({"model": "gpt2-124m", "cluster": "dgx-h100", "plan": {"pipeline_parallel": 2, "schedule": "file:gpt3-175b-1024.json"}})",
      "scenarios/x.json", 1, {});
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s.value().plan.schedule, "file:scenarios/gpt3-175b-1024.json");
  EXPECT_TRUE(s.value().plan.stage_layers.empty());  // the file knows how many stages it has
}

// An error inside an inline object has the line of the file that it stands in.
TEST(Scenario, InlineTextCountsLinesFromWhereItStands) {
  const Result<Scenario> s =
      parse_scenario("{\n\"model\": {\n\"model_type\": \"gpt5\"}}", "cases.json", 40, {});
  ASSERT_FALSE(s);
  EXPECT_TRUE(s.error().message.starts_with("cases.json:42: model.model_type: "))
      << s.error().message;
}

// --- measured cases ---

struct CaseCount {
  int read = 0, schedules = 0, states = 0;
  std::vector<std::string> skipped;
};

void read_case(const JsonValue& json, const std::string& path, CaseCount& count) {
  if (json.given("schedule") != nullptr) ++count.schedules;
  if (json.given("states") != nullptr) ++count.states;
  const JsonValue* scenario = json.given("scenario");
  if (scenario == nullptr) scenario = json.given("layer");
  if (const JsonValue* stage = json.given("stage")) scenario = stage->given("scenario");
  if (scenario == nullptr) return;
  const Result<Scenario> s = parse_scenario(to_json_text(*scenario), path, scenario->line, {});
  if (s) {
    ++count.read;
    EXPECT_EQ(s.value().gpus, scenario->given("gpus")->integer) << json.given("id")->text;
    return;
  }
  EXPECT_TRUE(s.error().unsupported) << s.error().message;
  count.skipped.push_back(json.given("id")->text + ": " + s.error().message);
}

// 1288 scenarios, 5 layers and 12 stages: each is read, or waits for what is not built yet.
TEST(MeasuredCases, AreAllReadOrSkippedForAReason) {
  CaseCount count;
  for (const std::string& path : json_files("tests/data/validation")) {
    const Result<JsonValue> file = read_json(path);
    ASSERT_TRUE(file) << file.error().message;
    JsonReport report(path);
    check_keys(file.value(), case_file_key_table(), "", report);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
    for (const JsonValue& json : file.value().given("cases")->items) read_case(json, path, count);
  }
  EXPECT_EQ(count.read + static_cast<int>(count.skipped.size()), 1305);
  EXPECT_EQ(count.schedules, 72);
  EXPECT_EQ(count.states, 4);
  for (const std::string& reason : count.skipped) {
    EXPECT_TRUE(reason.ends_with("not built yet")) << reason;
  }
}

// --- the JSON under it ---

TEST(Json, ValuesKnowTheirLines) {
  const Result<JsonValue> root = parse_json("{\"a\": 1,\n\n\"b\": [2\n, {\n\"c\": 3.5\n}]}", "x");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root.value().given("a")->line, 1);  // though the parser has looked past its end
  EXPECT_EQ(root.value().given("b")->line, 3);
  EXPECT_EQ(root.value().given("b")->items[0].line, 3);
  EXPECT_EQ(root.value().given("b")->items[1].line, 4);
  EXPECT_EQ(root.value().given("b")->items[1].given("c")->line, 5);
}

TEST(Json, TextReadsBackWithTheSameLines) {
  const std::string text =
      "{\"a\": [1, 2.5,\n true, null],\n\n\"b\": {\"c\": \"\\\"x\\n\\u0001é\"}}";
  const Result<JsonValue> first = parse_json(text, "x", 7);
  ASSERT_TRUE(first) << first.error().message;
  const std::string written = to_json_text(first.value());
  const Result<JsonValue> second = parse_json(written, "x", 7);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(to_json_text(second.value()), written);
  EXPECT_EQ(second.value().given("b")->line, 10);
  EXPECT_EQ(second.value().given("b")->given("c")->text, "\"x\n\x01é");
}

TEST(Json, NumbersWithoutAFractionAreIntegers) {
  const Result<JsonValue> root =
      parse_json("[1e3, 2048.0, -5, 9223372036854775807, 1e18, 0.5]", "x");
  ASSERT_TRUE(root) << root.error().message;
  const std::vector<JsonValue>& items = root.value().items;
  EXPECT_EQ(items[0].integer, 1000);
  EXPECT_EQ(items[1].integer, 2048);
  EXPECT_EQ(items[2].integer, -5);
  EXPECT_EQ(items[3].integer, INT64_MAX);
  EXPECT_TRUE(items[4].is(JsonKind::Number));  // beyond 2^53 a double need not be exact
  EXPECT_TRUE(items[5].is(JsonKind::Number));
}

TEST(Json, DistancesAreEdits) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(Json, LargeObjectsAndDeepNestingAreRefusedQuickly) {
  std::string wide = "{";
  for (int i = 0; i < 20000; ++i) wide += "\"k" + std::to_string(i) + "\": 1, ";
  EXPECT_FALSE(parse_json(wide + "\"z\": 1}", "x"));
  EXPECT_FALSE(parse_json(std::string(1 << 20, '['), "x"));
}

}  // namespace
}  // namespace rehearse
