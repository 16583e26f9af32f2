// SPDX-License-Identifier: Apache-2.0
// What is emitted for a framework is imported as the same plan: random plans, less what it says
// that it cannot express. The files are compared by the plan that they are read
// as, key by key, and every third by the step that is predicted of it, not by the emitter's word.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "schedules/base/json_document.h"
#include "schedules/config_files/open_config.h"
#include "schedules/frameworks/emit_flags.h"
#include "schedules/frameworks/import_flags.h"
#include "schedules/frameworks/launch_flags.h"
#include "schedules/frameworks/model_facts.h"
#include "schedules/scenario/keys/plan_notes.h"
#include "sim/predict/predict.h"
#include "tests/random_scenario.h"

namespace rehearse {
namespace {

// Per framework; 300 in the long form.
int plans_asked() {
  return std::getenv("REHEARSE_TEST_LONG") != nullptr ? 300 : 6;
}
constexpr int kGpusPerNode = 8;
constexpr int kMostRounds = 6;  // of refusals

class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(testing::TempDir()) / ("emit" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::vector<std::string> write(const Emitted& emitted) const {
    std::vector<std::string> paths;
    for (const EmittedText& file : emitted.files) paths.push_back(write(file.name, file.text));
    return paths;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::string path = (path_ / name).string();
    std::ofstream(path) << text;
    return path;
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

// What the framework would run there, as JSON; empty: the refusal does not say.
std::string instead(const std::string& line) {
  constexpr std::string_view kWould = " would run ";
  const std::size_t at = line.find(kWould);
  return at == std::string::npos ? "" : line.substr(at + kWould.size());
}

struct Drawn {
  sim::ScenarioText text;
  Scenario scenario;
  sim::Cluster cluster;
  Emitted emitted;
};

// A random plan that the framework can express: a key that it refuses becomes what it would run, or
// is left out; a model that it has no name for gives way to one of its own. False: too much is
// refused.
bool expressible(const Framework& framework, std::uint64_t seed, Drawn& to,
                 std::set<std::string>& refused) {
  sim::RandomScenario drawn = sim::random_scenario(
      seed, {.most_gpus = 64, .most_microbatches = 8, .open = false, .own_executor = false});
  to.text = drawn.text;
  to.cluster = std::move(drawn.cluster);
  to.text.variation.clear();
  to.text.plan["runtime"] = json_quoted(framework.runtimes[seed % framework.runtimes.size()]);
  if (!framework.models.empty())
    to.text.model = framework.models[seed % framework.models.size()].config;
  // What was refused before is mostly left out from the beginning, or hardly a plan is expressible.
  if (seed % 4 != 0) {
    for (const std::string& key : refused) to.text.plan.erase(key);
  }
  for (int round = 0; round < kMostRounds; ++round) {
    Result<Scenario> read = to.text.read();
    if (!read) return false;
    to.scenario = std::move(read).value();
    Result<Emitted> made = emit_flags(framework, to.scenario, model_of(to.text), kGpusPerNode);
    if (!made) return false;
    to.emitted = std::move(made).value();
    if (to.emitted.refused.empty()) return true;
    bool changed = false;
    for (const std::string& line : to.emitted.refused) {
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      const std::string key = refused_key(line);
      refused.insert(key);
      const std::string runs = instead(line);
      const auto said = to.text.plan.find(key);
      const bool another = said == to.text.plan.end() || said->second != runs;
      if (!runs.empty() && line.starts_with("plan.") && another) {
        to.text.plan[key] = runs;
        changed = true;
      } else {
        changed |= to.text.plan.erase(key) > 0;
      }
    }
    if (!changed) return false;
  }
  return false;
}

// Keys that the two plans do not have alike, but for what changes nothing in this one: idle keys,
// those of experts where there are none, the profile that prices it, and a precision by its name.
std::string differing_keys(const Scenario& drawn, const Scenario& back) {
  const Plan& a = drawn.plan;
  const Plan& b = back.plan;
  std::string text;
  std::set<std::string> aside{"runtime", "precision", "recompute"}, idle;
  if (const Result<JsonValue> given = parse_json(plan_json(a, -1), "plan")) {
    for (const IdleKey& one : keys_without_effect(given.value(), a)) idle.insert(one.key);
  }
  Precision named = b.precision;
  named.name = a.precision.name;
  if (!idle.contains("precision") && !(named == a.precision)) {
    const auto bytes = [](const Precision& p) {
      return fmt::format("{}+{}+{} {}", p.parameters, p.gradients, p.optimizer, name_of(p.compute));
    };
    text += "precision " + bytes(a.precision) + " -> " + bytes(b.precision) + "; ";
  }
  const bool again = !idle.contains("recompute");
  if (again && a.recompute.is_full() != b.recompute.is_full()) text += "recompute; ";
  for (std::size_t part = 0; part < kNumRecomputeParts && again; ++part) {
    const auto one = static_cast<RecomputePart>(part);
    if (a.recomputes(one) != b.recomputes(one)) text += "recompute of a part; ";
  }
  aside.insert(idle.begin(), idle.end());
  if (drawn.model.experts.count == 0) {
    for (const PlanRow& row : plan_rows()) {
      if (row.of_experts) aside.insert(path_of(row));
    }
    aside.insert("overlap.expert_parallel");
  }
  const Json left = Json::parse(plan_json(a, -1)), right = Json::parse(plan_json(b, -1));
  const auto compare = [&](const std::string& key, const Json& one, const Json* other) {
    const std::string got = other == nullptr ? "nothing" : other->dump();
    // Rates that are left open are none as far as time goes.
    const bool open = key == "dropout" && one.is_null();
    if (!open && !aside.contains(key) && got != one.dump())
      text += key + " " + one.dump() + " -> " + got + "; ";
  };
  for (const Json::Member& member : left.members()) {
    const Json* other = right.find(member.key);
    if (!member.value.is_object() || other == nullptr || !other->is_object()) {
      compare(member.key, member.value, other);
      continue;
    }
    for (const Json::Member& inner : member.value.members()) {
      compare(member.key + "." + inner.key, inner.value, other->find(inner.key));
    }
  }
  Json model = model_facts(drawn.model), read = model_facts(back.model);
  model.erase("max_positions");
  read.erase("max_positions");
  if (model.dump() != read.dump()) text += "model " + model.dump() + " -> " + read.dump();
  return text;
}

std::int64_t predicted_ns(const Scenario& scenario, const sim::Cluster& cluster) {
  const Result<sim::Prediction> made = sim::predict(scenario, cluster);
  return made ? std::llround(made.value().step_s * 1e9) : -1;
}

class PlanRoundTrip : public testing::TestWithParam<std::string> {
 protected:
  // The plan of the emitted files; its flags are all known.
  Result<Imported> imported(const Framework& framework, const Drawn& drawn) const {
    const Result<OpenedConfig> opened =
        open_config({.files = folder_.write(drawn.emitted)}, {framework});
    if (!opened) return opened.error();
    return imported(opened.value(), drawn, framework.names_models() ? "" : model_of(drawn.text));
  }
  // The plan of the line that `plan` and `search` print, with the model named apart.
  Result<Imported> imported_line(const Framework& framework, const Drawn& drawn) const {
    const Result<std::string> line =
        launch_flags(drawn.scenario, framework.name, model_of(drawn.text), kGpusPerNode);
    if (!line) return line.error();
    const Result<OpenedConfig> opened =
        open_config({.files = {folder_.write("line.args", line.value())}}, {framework});
    if (!opened) return Error{line.value() + ": " + opened.error().message};
    return imported(opened.value(), drawn, model_of(drawn.text));
  }
  static Result<Imported> imported(const OpenedConfig& opened, const Drawn& drawn,
                                   const std::string& model) {
    return import_flags(opened.framework, opened.settings,
                        {.gpus = drawn.scenario.gpus,
                         .model_json = model,
                         .runtime = drawn.scenario.plan.runtime.name,
                         .brief = false});
  }
  Folder folder_;
};

TEST_P(PlanRoundTrip, AnEmittedPlanIsImportedAsItWas) {
  const Result<Framework> framework = read_framework(GetParam());
  ASSERT_TRUE(framework) << framework.error().message;
  std::set<std::string> refused;
  int plans = 0, predictions = 0;
  std::uint64_t seed = 1;
  const int asked = plans_asked();
  for (; plans < asked && seed < 40'000; ++seed) {
    Drawn drawn;
    if (!expressible(framework.value(), seed, drawn, refused)) continue;
    SCOPED_TRACE(drawn.text.text());
    const Result<Imported> back = imported(framework.value(), drawn);
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_EQ(differing_keys(drawn.scenario, back.value().scenario), "");
    const Result<Imported> line = imported_line(framework.value(), drawn);
    ASSERT_TRUE(line) << line.error().message;
    ASSERT_EQ(differing_keys(drawn.scenario, line.value().scenario), "");
    if (++plans % 3 != 0) continue;
    const std::int64_t ns = predicted_ns(drawn.scenario, drawn.cluster);
    if (ns < 0) continue;
    ++predictions;
    ASSERT_EQ(predicted_ns(back.value().scenario, drawn.cluster), ns);
  }
  fmt::print("{} can express {} of {} drawn plans\n", framework.value().title, plans, seed - 1);
  EXPECT_EQ(plans, asked);
  EXPECT_GT(predictions, 0);
  // Some keys have to be refused: no framework has them all.
  EXPECT_TRUE(refused.contains("schedule"));
  std::string keys;
  for (const std::string& key : refused) keys += " " + key;
  RecordProperty("refused", keys);
  RecordProperty("drawn", std::to_string(seed - 1));
}

INSTANTIATE_TEST_SUITE_P(Frameworks, PlanRoundTrip,
                         testing::Values("megatron", "torchtitan", "deepspeed", "nanotron"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace rehearse
