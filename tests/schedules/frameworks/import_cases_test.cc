// SPDX-License-Identifier: Apache-2.0
// Real configurations become the scenarios that a person reads in them: every case of
// tests/data/frameworks/cases.json, whose files stand beside it.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "schedules/config_files/open_config.h"
#include "schedules/frameworks/import_flags.h"

namespace rehearse {
namespace {

using Cases = nlohmann::ordered_json;
const std::string kFolder = "tests/data/frameworks/";

Cases all_cases() {
  std::ifstream in(kFolder + "cases.json");
  return Cases::parse(in)["cases"];
}

struct Made {
  std::string error;
  Imported imported;
};

Made made_of(const Cases& one) {
  ConfigFiles files;
  for (const Cases& file : one["files"]) files.files.push_back(kFolder + file.get<std::string>());
  for (const Cases& word : one["arguments"]) files.arguments.push_back(word.get<std::string>());
  const Cases& given = one["given"];
  if (given.contains("variables")) {
    for (const auto& [name, value] : given["variables"].items()) files.variables[name] = value;
  }
  ImportOptions options{.gpus = given.value("gpus", 0),
                        .cluster = "dgx-h100",
                        .model = given.value("model", ""),
                        .brief = one["id"] == "megatron-gpt3-175b"};
  if (given.contains("set")) {
    for (const Cases& set : given["set"]) options.set.push_back(set.get<std::string>());
  }
  const Result<OpenedConfig> opened = open_config(files);
  if (!opened) return {opened.error().message, {}};
  Result<Imported> made = import_flags(opened.value().framework, opened.value().settings, options);
  if (!made) return {made.error().message, {}};
  return {"", std::move(made).value()};
}

// What a case expects of `precision`, a word or an object, as bytes.
void expect_precision(const Cases& want, const Plan& plan, const std::string& id) {
  const std::map<std::string, std::array<int, 3>> bytes{
      {"fp32", {4, 4, 8}}, {"fp16", {2, 2, 12}}, {"bf16", {2, 4, 12}}, {"fp8", {2, 4, 12}}};
  const Precision& got = plan.precision;
  std::array<int, 3> wanted{};
  if (want.is_string()) {
    wanted = bytes.at(want.get<std::string>());
  } else {
    wanted = {want["parameters"], want["gradients"], want["optimizer"]};
  }
  EXPECT_EQ(got.parameters, wanted[0]) << id;
  EXPECT_EQ(got.gradients, wanted[1]) << id;
  EXPECT_EQ(got.optimizer, wanted[2]) << id;
}

void expect_members(const Cases& want, const Cases& got, const std::string& where) {
  for (const auto& [key, value] : want.items()) {
    if (value.is_null() && !got.contains(key)) continue;
    ASSERT_TRUE(got.contains(key)) << where << key;
    if (value.is_object() && got[key].is_object()) {
      expect_members(value, got[key], where + key + ".");
    } else if (value.is_number() && got[key].is_number()) {
      EXPECT_DOUBLE_EQ(got[key].get<double>(), value.get<double>()) << where << key;
    } else {
      EXPECT_EQ(got[key], value) << where << key;
    }
  }
}

void expect_case(const Cases& one) {
  const std::string id = one["id"];
  const Made made = made_of(one);
  if (!one["error"].is_null()) {
    EXPECT_NE(made.error, "") << id << ": " << one["error"];
    EXPECT_EQ(made.error.find('\n'), std::string::npos) << made.error;
    return;
  }
  ASSERT_EQ(made.error, "") << id;
  const Scenario& scenario = made.imported.scenario;
  const Cases& expect = one["expect"];
  if (expect.contains("gpus")) {
    EXPECT_EQ(scenario.gpus, expect["gpus"].get<int>()) << id;
  }
  const Cases plan = Cases::parse(plan_json(scenario.plan, -1));
  Cases wanted = expect["plan"];
  if (wanted.contains("precision")) {
    expect_precision(wanted["precision"], scenario.plan, id);
    wanted.erase("precision");
  }
  expect_members(wanted, plan, id + ": plan.");
  const Cases text = Cases::parse(made.imported.text);
  if (expect.contains("model") && text["model"].is_object()) {
    expect_members(expect["model"], text["model"], id + ": model.");
  }
  if (expect.contains("train")) expect_members(expect["train"], text["train"], id + ": train.");
}

// Every flag has one of the four words, and what the case's author found to be left out of a plan
// is said to be so, or is a key by now.
void expect_flags(const Cases& one, const Imported& imported) {
  const std::string id = one["id"];
  for (const FlagReport& flag : imported.flags) {
    EXPECT_TRUE(flag.use.has_value()) << id << ": " << flag.setting.flag;
  }
  for (const Cases& entry : one["not_modelled"]) {
    const std::string text = entry;
    const std::string flag = text.substr(0, text.find(' '));
    for (const FlagReport& report : imported.flags) {
      if (report.setting.flag != flag) continue;
      EXPECT_TRUE(report.use == FlagUse::NotModelled || report.use == FlagUse::Used)
          << id << ": " << flag;
    }
  }
}

class ImportCases : public testing::TestWithParam<std::string> {};

TEST_P(ImportCases, EveryConfigurationBecomesThePlanThatAPersonReadsInIt) {
  int tried = 0;
  for (const Cases& one : all_cases()) {
    const std::string id = one["id"];
    if (!id.starts_with(GetParam())) continue;
    ++tried;
    SCOPED_TRACE(id);
    expect_case(one);
    if (!one["error"].is_null()) continue;
    const Made made = made_of(one);
    if (made.error.empty()) expect_flags(one, made.imported);
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Frameworks, ImportCases,
                         testing::Values("megatron", "bloom", "titan", "ds", "accelerate", "hf",
                                         "nanotron", "nemo", "bridge"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace rehearse
