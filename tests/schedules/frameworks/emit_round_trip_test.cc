// SPDX-License-Identifier: Apache-2.0
// What is emitted for a framework is imported as the same plan: 300 random plans per framework,
// less what it says that it cannot express.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "schedules/base/json_document.h"
#include "schedules/config_files/open_config.h"
#include "schedules/frameworks/emit_flags.h"
#include "schedules/frameworks/import_flags.h"
#include "tests/random_scenario.h"

namespace rehearse {
namespace {

constexpr int kPlans = 300;

class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(testing::TempDir()) / ("emit" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::vector<std::string> write(const Emitted& emitted) const {
    std::vector<std::string> paths;
    for (const EmittedText& file : emitted.files) {
      paths.push_back((path_ / file.name).string());
      std::ofstream(paths.back()) << file.text;
    }
    return paths;
  }

 private:
  std::filesystem::path path_;
};

std::string model_of(const sim::ScenarioText& text) {
  const Json named = Json::parse(text.model);
  if (named.is_object()) return text.model;
  const Result<JsonValue> read = read_json("scenarios/models/" + named.text() + ".json");
  return read ? Json(read.value()).dump() : "";
}

// The key that a refusal names, "plan.zero_stage: ..." as the text's: "zero_stage"; "model".
std::string refused_key(const std::string& line) {
  const std::string path = line.substr(0, line.find(':'));
  return path.starts_with("plan.") ? path.substr(5) : path;
}

struct Drawn {
  sim::ScenarioText text;
  Scenario scenario;
  Emitted emitted;
};

// A random plan that the framework can express: what it refuses is left out, a model that it has no
// name for gives way to one of its own. False: too much is refused.
bool expressible(const Framework& framework, std::uint64_t seed, Drawn& to,
                 std::set<std::string>& refused) {
  const sim::RandomScenario drawn = sim::random_scenario(
      seed, {.most_gpus = 64, .most_microbatches = 8, .open = false, .own_executor = false});
  to.text = drawn.text;
  to.text.variation.clear();
  to.text.plan["runtime"] = json_quoted(framework.runtimes[seed % framework.runtimes.size()]);
  if (!framework.models.empty())
    to.text.model = framework.models[seed % framework.models.size()].config;
  for (int round = 0; round < 6; ++round) {
    Result<Scenario> read = to.text.read();
    if (!read) return false;
    to.scenario = std::move(read).value();
    Result<Emitted> made = emit_flags(framework, to.scenario, model_of(to.text), 8);
    if (!made) return false;
    to.emitted = std::move(made).value();
    if (to.emitted.refused.empty()) return true;
    bool changed = false;
    for (const std::string& line : to.emitted.refused) {
      const std::string key = refused_key(line);
      refused.insert(key);
      changed |= to.text.plan.erase(key) > 0;
    }
    if (!changed) return false;
  }
  return false;
}

std::string differing_keys(const Plan& a, const Plan& b) {
  const Json left = Json::parse(plan_json(a, -1)), right = Json::parse(plan_json(b, -1));
  std::string text;
  for (const Json::Member& member : left.members()) {
    const Json* other = right.find(member.key);
    const std::string got = other == nullptr ? "nothing" : other->dump();
    if (got != member.value.dump())
      text += member.key + " " + member.value.dump() + " -> " + got + "; ";
  }
  return text;
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, AnEmittedPlanIsImportedAsItWas) {
  const Result<Framework> framework = read_framework(GetParam());
  ASSERT_TRUE(framework) << framework.error().message;
  const Folder folder;
  std::set<std::string> refused;
  int plans = 0;
  std::uint64_t seed = 1;
  for (; plans < kPlans && seed < 40'000; ++seed) {
    Drawn drawn;
    if (!expressible(framework.value(), seed, drawn, refused)) continue;
    ++plans;
    SCOPED_TRACE(drawn.text.text());
    ConfigFiles files{.files = folder.write(drawn.emitted)};
    // A folder has the configuration and the script that starts it.
    if (files.files.size() == 2 && GetParam() != "deepspeed") files.files.pop_back();
    files.framework = GetParam();
    const Result<OpenedConfig> opened = open_config(files);
    ASSERT_TRUE(opened) << opened.error().message;
    const bool names = framework.value().names_models();
    const Result<Imported> back = import_flags(opened.value().framework, opened.value().settings,
                                               {.gpus = drawn.scenario.gpus,
                                                .model_json = names ? "" : model_of(drawn.text),
                                                .runtime = drawn.scenario.plan.runtime.name,
                                                .brief = false});
    ASSERT_TRUE(back) << back.error().message;
    for (const FlagReport& flag : back.value().flags) {
      EXPECT_TRUE(flag.use.has_value()) << flag.setting.flag;
    }
    // What the emitter compares, once more from the files; but idle keys, which mean nothing.
    const Result<Emitted> again =
        emit_flags(framework.value(), back.value().scenario, names ? "" : model_of(drawn.text), 8);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(flags_text(again.value().flags), flags_text(drawn.emitted.flags))
        << differing_keys(drawn.scenario.plan, back.value().scenario.plan);
    if (HasFailure()) return;
  }
  EXPECT_EQ(plans, kPlans) << "of " << seed << " drawn";
  std::string keys;
  for (const std::string& key : refused) keys += " " + key;
  std::printf("%s: %d plans of %d drawn; refused now and then:%s\n", GetParam().c_str(), plans,
              static_cast<int>(seed - 1), keys.c_str());
  // Some keys have to be refused: no framework has them all.
  EXPECT_TRUE(refused.contains("schedule"));
}

INSTANTIATE_TEST_SUITE_P(Frameworks, RoundTrip,
                         testing::Values("megatron", "torchtitan", "deepspeed", "nanotron"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace rehearse
